"""What is run before a worker is ready, so that no plan meets a kernel that is not compiled."""

import time
from collections.abc import Callable, Iterator, Sequence

from .steps.computation import Computation
from .steps.sizes import BodySize, HeadSize, Sizes

Size = BodySize | HeadSize


def largest_sizes(sizes: Sizes) -> list[Size]:
    """The steps that need the most memory, with every option of the sampler, and the lone token's, which has
    buffers of its own; then all buffers exist."""
    rows = sizes.rows[-1]
    bodies = [sizes.body(rows, sizes.tokens[-1], decodes_only=False), sizes.body(1, 1, decodes_only=True)]
    return [*bodies, *_heads(rows)]


def forms(sizes: Sizes) -> list[Size]:
    """A size for each form that a kernel is compiled in: they depend on the next power of two of the rows."""
    eager = [sizes.body(rows, sizes.tokens[-1], decodes_only=False) for rows in sizes.rows]
    heads = [head for lines in sizes.rows for head in _heads(lines)]
    found: dict[tuple[object, ...], Size] = {}
    for size in (*eager, *sizes.bodies(), *heads):
        found[_form(size)] = size
    return list(found.values())


def prepare(
    computation: Computation,
    sizes: Sequence[Size],
    *,
    seconds: float,
    on_progress: Callable[[float], None],
) -> None:
    """Prepare sizes in their order, until so much time has passed."""
    began = time.perf_counter()
    for index, size in enumerate(sizes):
        if time.perf_counter() - began > seconds:
            return
        computation.prepare(size)
        on_progress((index + 1) / len(sizes))


def _heads(lines: int) -> Iterator[HeadSize]:
    yield HeadSize(lines, filtered=False, ruled=False, logprobs=False)
    yield HeadSize(lines, filtered=True, ruled=False, logprobs=False)
    yield HeadSize(lines, filtered=True, ruled=True, logprobs=True)


def _form(size: Size) -> tuple[object, ...]:
    if isinstance(size, BodySize):
        return size.decodes_only, size.num_rows == 1, _power(size.num_rows)
    return size[1:], size.num_lines == 1, _power(size.num_lines)


def _power(size: int) -> int:
    return 1 << (size - 1).bit_length()
