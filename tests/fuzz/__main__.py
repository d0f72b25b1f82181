"""``python -m tests.fuzz contracts`` and ``… parsers``: what ``make fuzz`` runs. The second
starts ``engine``.
"""

import argparse
import sys
import time
from pathlib import Path


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.fuzz")
    parser.add_argument("what", choices=["contracts", "parsers", "engine"])
    parser.add_argument("only", nargs="*", help="names of parsers")
    parser.add_argument("--seconds", type=int, default=600)
    parser.add_argument("--seed", type=int, default=int(time.time()) % 1_000_000)
    parser.add_argument("--scratch", type=Path, required=True)
    given = parser.parse_intermixed_args()
    if given.what == "contracts":
        from tests.fuzz import contracts

        return contracts.run(given.scratch, given.seconds, given.seed)
    from tests.fuzz import engine

    if given.what == "engine":
        return engine.fuzz_all(given.scratch, given.seconds, given.seed, given.only)
    return engine.run(given.scratch, given.seconds, given.seed, given.only)


if __name__ == "__main__":
    sys.exit(main())
