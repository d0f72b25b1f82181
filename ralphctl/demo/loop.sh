#!/bin/sh
# A stand-in for a coding agent in a loop: it works, and behaves as badly as the real ones do.

trap 'echo "SIGTERM? Not now, I am busy."' TERM

# A dev server, started as agents start them: in a session of its own, its parent gone.
( setsid ./devserver.sh >/dev/null 2>&1 & )

touch "$HOME/printed"
n=$(wc -l <"$HOME/printed")
while :; do
    n=$((n + 1))
    echo "line $n"
    echo "$n" >>"$HOME/printed" # its own account, to compare the log with
    if [ $((n % 10)) -eq 0 ]; then
        echo "what was found up to line $n" >>notes.md
        git add notes.md
        git commit --quiet --message "notes: up to line $n"
    fi
    if [ "$n" -eq 25 ]; then
        echo "out of memory (not really)" >&2
        exit 1
    fi
    sleep 0.1
done
