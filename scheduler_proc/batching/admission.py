"""Whether the memory will suffice for one more choice, not only now but at the worst moment to come."""

import numpy as np
from numpy.typing import NDArray

from ..core.request import Choice
from ..memory.kv_cache import Prefix
from ..memory.kv_group import GroupBlocks
from .lengths import OutputLengths
from .worker import Worker

Ints = NDArray[np.int64]


def peak_blocks(current: Ints, remaining: Ints) -> int:
    """Most blocks that n sequences hold together until all have ended.

    Each holds `current` [n] blocks and grows by `remaining` [n] more, all at the same pace, and gives all
    back at its end. The peak is just before one ends: those with as much or more remaining are then alive.
    """
    order = np.argsort(-remaining, kind="stable")
    alive = np.arange(1, len(order) + 1)
    return int((np.cumsum(current[order]) + remaining[order] * alive).max(initial=0))


def will_fit(worker: Worker, choice: Choice, prefix: Prefix, lengths: OutputLengths) -> bool:
    """Whether the running choices and this one are expected to reach their ends without a preemption."""
    rows = worker.rows
    taken = rows.taken()
    if not len(taken):
        return True
    known = np.append(rows.num_known[taken], choice.num_known)
    produced = known - np.append(rows.prompt_len[taken], choice.request.prompt_len)
    left = np.append(rows.max_length[taken], choice.max_length) - known
    final = known + lengths.remaining(produced, left)
    return all(
        _fits(group, known, final, taken, blocks)
        for group, blocks in zip(worker.memory.groups, prefix.blocks, strict=True)
    )


def _fits(group: GroupBlocks, known: Ints, final: Ints, taken: Ints, prefix: list[int]) -> bool:
    size = group.block_size
    current, last = -(-known // size), -(-final // size)
    if group.window:
        # Rows pass through at most a window's worth, and hold it to their ends.
        most = np.minimum(last, group.most_live(int(final.max())))
        return int(most.sum()) <= group.pool.num_blocks
    current[:-1] = np.maximum(current[:-1], group.held[taken])
    # A block that several rows share was counted for each of them, and once is right.
    shared = int(group.held[taken].sum()) + len(group.leaving) - group.pool.num_live
    shared += sum(map(bool, map(group.pool.refs.__getitem__, prefix)))
    return peak_blocks(current, last - current) - max(0, shared) <= group.pool.num_blocks
