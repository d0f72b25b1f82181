#!/bin/sh
n=0
while :; do n=$((n+1)); echo "line $n"; sleep 0.2; done
