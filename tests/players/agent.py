"""Plays a coding agent's CLI by the script that PLAYED_SCRIPT names: see ``agents.py`` for who writes it.

It speaks as the CLI of that name does (claude, codex, gemini, opencode; any other name: plain text), does
what the next step of the script says, and records the call. Whatever it does, it is gone after two minutes.

agent.py NAME ARGUMENT...
"""

import os
import signal
import sys

SESSION_FLAGS = ("--resume", "resume", "-s", "--session", "--session-id", "-r")


def main(name: str, argv: list[str]) -> int:
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
    from tests.players.played.habits import BOUND_S, Play, play
    from tests.players.played.record import Book
    from tests.players.played.voices import VOICES, Voice

    signal.alarm(BOUND_S)
    stdin = "" if os.isatty(0) else sys.stdin.buffer.read().decode("utf-8", "replace")
    prompt = stdin if stdin.strip() else max(argv, key=len, default="")
    resumed = next((argv[at + 1] for at, word in enumerate(argv[:-1]) if word in SESSION_FLAGS), None)
    book = Book(os.environ["PLAYED_SCRIPT"])
    step = book.begin(name, argv, prompt, stdin, resumed)
    session = resumed or f"00000000-0000-4000-8000-{book.number:012d}"
    code = play(Play(VOICES.get(name, Voice)(session), prompt, step, book.number))
    book.end(code)
    return code


if __name__ == "__main__":
    try:
        code = main(sys.argv[1], sys.argv[2:])
    except BrokenPipeError:
        code = 1
    os._exit(code)  # nothing is buffered, and the interpreter's own end takes its time
