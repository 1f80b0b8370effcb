"""`python -m margrave`: the command-line program."""

import sys

from . import _core


def main() -> int | None:
    """Run the program with the arguments of this process; return its exit code."""
    return _core.main(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
