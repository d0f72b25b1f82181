#!/bin/sh
# A server that ends neither with the loop that started it nor when it is asked to.

trap '' TERM HUP INT
echo "$$" >>"$HOME/servers"
while :; do
    sleep 1
done
