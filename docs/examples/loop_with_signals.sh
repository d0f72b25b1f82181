#!/bin/bash
over=
trap 'over=0' TERM
trap 'over=75' USR1
trap : USR2
ralphctl notify hello --signals
while [ -z "$over" ]; do
    ralphctl notify iteration-started || true
    setsid --wait claude -p "$(cat PROMPT.md)"
    ralphctl notify iteration-finished --wait || case $? in 10 | 75) exit 0 ;; esac
done
exit "$over"
