"""The policies by name."""

from ...protocol.config import SchedulerConfig
from ...protocol.errors import UsageError
from .deadline import Deadline
from .fair import Fair, parse_weights
from .order import Fcfs, Order, Priority

NAMES = ("fcfs", "priority", "deadline", "fair")


def make_order(config: SchedulerConfig) -> Order:
    """The policy of a configuration. Raises UsageError for an unknown one."""
    match config.scheduling_policy:
        case "fcfs":
            return Fcfs()
        case "priority":
            return Priority()
        case "deadline":
            return Deadline(config.target_ttft_ms / 1e3)
        case "fair":
            return Fair(parse_weights(config.fair_weights))
        case name:
            raise UsageError(f"no scheduling policy {name!r}; there are {', '.join(NAMES)}")
