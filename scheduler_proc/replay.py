"""`python -m octavo.scheduler_proc.replay FILE`: run a journal again and say whether it gave the same."""

import argparse
import sys
from pathlib import Path

from ..protocol.errors import OctavoError
from .core.scheduler import Scheduler
from .journal import ReplayError, replay
from .study.plots import Timeline, draw_timeline

_TICK = 0.01  # seconds between two points of a picture


def main(argv: list[str]) -> int:
    """0 when every event gave the commands it gave before, 1 when one did not, 2 when FILE cannot be read."""
    parser = argparse.ArgumentParser(prog="octavo replay", description=__doc__, allow_abbrev=False)
    parser.add_argument("file", metavar="FILE")
    parser.add_argument("--plot", type=Path, metavar="PNG", help="draw queue, batch and blocks over time")
    arguments = parser.parse_args(argv[1:])
    seen = _Seen()
    try:
        done = replay(arguments.file, seen.watch if arguments.plot else None)
        if arguments.plot:
            draw_timeline(arguments.plot, seen.timeline, f"{Path(arguments.file).name}, replayed")
    except ReplayError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    except (OctavoError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    sys.stdout.write(f"{done.events} events gave the same {done.commands} commands\n")
    return 0


class _Seen:
    """What a picture of a replay shows."""

    def __init__(self) -> None:
        self.timeline = Timeline()
        self._began = -1.0

    def watch(self, now: float, core: Scheduler) -> None:
        """Take a point, if enough time has passed since the last."""
        self._began = now if self._began < 0 else self._began
        at = now - self._began
        if not self.timeline.seconds or at - self.timeline.seconds[-1] >= _TICK:
            stats = core.engine_stats()
            self.timeline.add(at, stats.waiting, stats.running, stats.blocks_live, stats.blocks_cached)


if __name__ == "__main__":
    sys.exit(main(sys.argv))
