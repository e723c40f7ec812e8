"""Pictures of runs, as PNG files. They need matplotlib, which is an extra: `octavo[plots]`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ...protocol.errors import UsageError
from .simulate import Outcome

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_WIDTH, _HEIGHT = 10.0, 2.4  # inches of one row of pictures


@dataclass(slots=True)
class Timeline:
    """Gauges of a scheduler over time, one entry a moment."""

    seconds: list[float] = field(default_factory=list)
    waiting: list[int] = field(default_factory=list)
    running: list[int] = field(default_factory=list)
    blocks: list[int] = field(default_factory=list)  # live
    cached: list[int] = field(default_factory=list)  # blocks that are free and reusable

    def add(self, seconds: float, waiting: int, running: int, blocks: int, cached: int) -> None:
        """One moment more."""
        for column, value in zip(
            (self.waiting, self.running, self.blocks, self.cached),
            (waiting, running, blocks, cached),
            strict=True,
        ):
            column.append(value)
        self.seconds.append(seconds)


def draw_timeline(path: Path, timeline: Timeline, title: str) -> None:
    """Queue, batch and blocks over time, one above the other. Raises UsageError without matplotlib."""
    axes = _axes(3, title)
    axes[0].step(timeline.seconds, timeline.waiting, where="post", color="tab:red")
    axes[0].set_ylabel("choices waiting")
    axes[1].step(timeline.seconds, timeline.running, where="post", color="tab:blue")
    axes[1].set_ylabel("choices running")
    axes[2].step(timeline.seconds, timeline.blocks, where="post", color="tab:green", label="live")
    axes[2].step(timeline.seconds, timeline.cached, where="post", color="tab:gray", label="cached")
    axes[2].set_ylabel("KV blocks")
    axes[2].set_xlabel("seconds")
    axes[2].legend(loc="upper right")
    _save(axes, path)


def draw_policies(path: Path, runs: Mapping[str, Sequence[Outcome]], title: str) -> None:
    """Times to first tokens over the arrivals, and their distribution, one line a policy."""
    axes = _axes(2, title)
    for policy, outcomes in runs.items():
        seen = [outcome for outcome in outcomes if outcome.tokens]
        ttft = sorted(outcome.ttft for outcome in seen)
        axes[0].plot(
            [outcome.arrival.at for outcome in seen],
            [outcome.ttft for outcome in seen],
            ".",
            markersize=3,
            label=policy,
        )
        axes[1].plot(ttft, [(at + 1) / len(ttft) for at in range(len(ttft))], label=policy)
    axes[0].set_ylabel("first token, s")
    axes[0].set_xlabel("arrival, s")
    axes[1].set_ylabel("share of requests")
    axes[1].set_xlabel("first token within, s")
    axes[1].legend(loc="lower right")
    _save(axes, path)


def _axes(rows: int, title: str) -> "list[Axes]":
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UsageError("pictures need matplotlib: pip install octavo[plots]") from error
    figure = Figure(figsize=(_WIDTH, _HEIGHT * rows), layout="constrained")
    figure.suptitle(title)
    return [figure.add_subplot(rows, 1, row + 1) for row in range(rows)]


def _save(axes: "list[Axes]", path: Path) -> None:
    for one in axes:
        one.grid(visible=True, alpha=0.3)
    figure = axes[0].get_figure(root=True)
    if figure is not None:
        figure.savefig(path, dpi=100)
