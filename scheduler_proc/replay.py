"""`python -m octavo.scheduler_proc.replay FILE`: run a journal again and say whether it gave the same."""

import sys

from ..protocol.errors import OctavoError
from .journal import ReplayError, replay


def main(argv: list[str]) -> int:
    """0 when every event gave the commands it gave before, 1 when one did not, 2 when FILE cannot be read."""
    if len(argv) != 2:
        sys.stderr.write("usage: python -m octavo.scheduler_proc.replay FILE\n")
        return 2
    try:
        done = replay(argv[1])
    except ReplayError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    except (OctavoError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    sys.stdout.write(f"{done.events} events gave the same {done.commands} commands\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
