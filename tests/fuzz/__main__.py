"""``python -m tests.fuzz contracts`` and ``… parsers``: what ``make fuzz`` runs. The engine starts ``one`` and ``grow``."""

import argparse
import sys
import time
from pathlib import Path


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.fuzz")
    parser.add_argument("what", choices=["contracts", "parsers", "one", "grow"])
    parser.add_argument("only", nargs="*", help="names of parsers")
    parser.add_argument("--seconds", type=int, default=600)
    parser.add_argument("--seed", type=int, default=int(time.time()) % 1_000_000)
    parser.add_argument("--scratch", type=Path, required=True)
    given = parser.parse_intermixed_args()
    if given.what == "contracts":
        from tests.fuzz import contracts

        return contracts.run(given.scratch, given.seconds, given.seed)
    from tests.fuzz import engine

    if given.what == engine.FUZZ:
        return engine.fuzz_one(given.only[0], given.scratch, given.seconds, given.seed)
    if given.what == engine.GROW:
        return engine.grow_one(given.only[0], given.seconds, given.seed)
    return engine.run(given.scratch, given.seconds, given.seed, given.only)


if __name__ == "__main__":
    sys.exit(main())
