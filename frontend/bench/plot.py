"""Latency against load, as a PNG file. It needs matplotlib, which is an extra: `octavo[plots]`."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ...protocol.errors import UsageError

if TYPE_CHECKING:
    from .serve import Row


def draw_latency(rows: Sequence["Row"], path: Path, title: str) -> None:
    """Times to the first token and between tokens, over tokens a second.

    Raises UsageError without matplotlib.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UsageError("pictures need matplotlib: pip install octavo[plots]") from error
    figure = Figure(figsize=(8, 6), layout="constrained")
    load = [row.tokens_per_second for row in rows]
    for place, (name, attribute) in enumerate((("TTFT", "first_ms"), ("ITL", "gap_ms")), start=1):
        axes = figure.add_subplot(2, 1, place)
        for index, percent in enumerate((50, 90, 99)):
            values = [getattr(row, attribute)[index] for row in rows]
            axes.plot(load, values, marker="o", label=f"p{percent}")
        for row in rows:
            axes.annotate(str(row.concurrency), (row.tokens_per_second, getattr(row, attribute)[0]))
        axes.set_ylabel(f"{name}, ms")
        axes.set_yscale("log")
        axes.grid(alpha=0.3)
        axes.legend()
    axes.set_xlabel("tokens a second; beside the points: requests open at once")
    figure.suptitle(title)
    figure.savefig(path)
