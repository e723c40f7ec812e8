"""The parts of the CUDA runner that need no kernel: sizes, pieces of a pool, memory, what is staged."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from octavo.protocol.errors import OutOfMemoryError
from octavo.worker_proc.cuda.model.memory import MemoryUse, size_kv_groups
from octavo.worker_proc.cuda.rows.columns import RowColumns
from octavo.worker_proc.cuda.rows.parameters import row_values
from octavo.worker_proc.cuda.rows.spans import Spans
from octavo.worker_proc.cuda.rows.staging import Staging
from octavo.worker_proc.cuda.steps.sizes import Sizes
from octavo.worker_proc.cuda.warm import forms

from ...support.cuda_runner import cuda_config

GIB = 1 << 30


@given(st.integers(1, 1024), st.integers(1, 9000))
def test_every_step_has_a_size_that_holds_it(max_rows: int, max_tokens: int) -> None:
    sizes = Sizes(min(max_rows, max_tokens), max_tokens, 1024, lone_row=True)
    captured = set(sizes.bodies())
    for rows in {1, 2, sizes.rows[-1] // 2, min(max_rows, max_tokens)}:
        size = sizes.body(rows, rows, decodes_only=True)
        assert size in captured
        assert rows <= size.num_rows == size.num_tokens < max(rows + 8, rows * 9 / 8 + 1)
        for tokens in {rows, 9, max_tokens // 2, max_tokens}:
            if rows <= tokens <= max_tokens:
                size = sizes.body(rows, tokens, decodes_only=False)
                assert tokens <= size.num_tokens < max(tokens + 8, tokens * 9 / 8 + 1)
                assert rows <= size.num_rows <= size.num_tokens
                assert (size in captured) == sizes.captured(size)


def test_every_form_of_a_kernel_is_prepared() -> None:
    sizes = Sizes(256, 8192, 1024, lone_row=True)
    prepared = {(size[-1], (size[0] - 1).bit_length()) for size in forms(sizes) if len(size) == 3}
    assert {bits for decodes, bits in prepared if decodes} == {0, 3, 4, 5, 6, 7, 8}
    assert len(forms(sizes)) < 50


@given(st.lists(st.integers(1, 40), max_size=60), st.randoms())
def test_pieces_never_overlap_and_all_come_back(wanted: list[int], random: object) -> None:
    spans = Spans(300)
    held: list[tuple[int, int]] = []
    for size in wanted:
        start = spans.take(size)
        if start is None:
            spans.give_back(*held.pop(random.randrange(len(held))))  # type: ignore[attr-defined]
            continue
        assert all(start + size <= other or other + length <= start for other, length in held)
        held.append((start, size))
    for piece in held:
        spans.give_back(*piece)
    assert spans.take(300) == 0
    assert spans.take(1) is None


def make_config(**fields: object) -> object:
    from octavo.worker_proc.models.config import ModelConfig

    sizes = {
        "architecture": "X", "vocab_size": 100, "hidden_size": 64, "intermediate_size": 64, "num_layers": 2,
        "num_heads": 4, "num_kv_heads": 2, "head_dim": 16, "norm_eps": 1e-6, "tied_head": True, "rope": None,
        "dtype": None, "initializer_range": 0.1,
    }  # fmt: skip
    return ModelConfig(**sizes | fields)  # type: ignore[arg-type]


def size_groups(use: MemoryUse, num_blocks: int = 0, **traits: object) -> list[int]:
    config = cuda_config(Path(), vocab_size=100, num_blocks=num_blocks, max_model_len=1000)
    groups = size_kv_groups(
        make_config(**traits),  # type: ignore[arg-type]
        config,
        dtype=torch.bfloat16,
        block_size=64,
        use=use,
    )
    return [group.num_blocks for group in groups]


def test_the_cache_gets_what_is_left() -> None:
    # A block takes 2 layers x 2 x 2 heads x 16 x 64 tokens x 2 bytes = 16 KiB.
    assert size_groups(MemoryUse(10 * GIB, 4 * GIB, GIB)) == [4 * 65536]
    assert size_groups(MemoryUse(10 * GIB, 4 * GIB, GIB), num_blocks=7) == [7]


def test_layers_with_a_window_leave_the_rest_to_the_others() -> None:
    # Eight rows of three blocks and two steps of one: as many again may be found in the cache.
    use = MemoryUse(10 * GIB, 4 * GIB, GIB)
    assert size_groups(use, windows=(0, 128)) == [8 * 65536 - 52, 52]


@pytest.mark.parametrize(("used", "num_blocks"), [(9, 0), (5, 1 << 30)])
def test_a_cache_that_does_not_fit_says_what_to_change(used: int, num_blocks: int) -> None:
    with pytest.raises(OutOfMemoryError, match=r"gpu-memory-utilization.*max-num-seqs"):
        size_groups(MemoryUse(10 * GIB, used * GIB, GIB), num_blocks)


def test_a_row_s_fields_arrive_in_their_columns() -> None:
    from octavo.protocol.columns import pack_i32
    from octavo.protocol.sampling import SamplingParams
    from octavo.protocol.steps import NewRow

    columns = RowColumns(5, 3, 2, 10, device="cpu")
    staging = Staging(8, len(columns.state), 100, num_slots=2, device="cpu", pinned=False)
    params = SamplingParams(temperature=0.5, top_k=7, top_p=0.25, temperature_last=True)
    new = NewRow(3, pack_i32([1, 2]), 2, params, 2**64 - 5, 6, (b"", b""))
    lists = {
        f"{name}_{part}": 0
        for name in ("allowed", "biased", "banned", "words")
        for part in ("start", "count")
    }
    staging.begin()
    staging.change(*columns.fields_of(3, row_values(new) | lists | {"words_count": 4}))
    staging.change(*columns.recent_of(3, 31, np.array([8, 9], np.int32)))
    staging.change(columns.block_addresses(1, 3, np.arange(3)), np.array([4, 5, 6], np.int32))
    staging.write_changes()
    staging.send()
    count = int(staging.changes[0])
    addresses, values = staging.changes[1 : 1 + count], staging.changes[1 + count : 1 + 2 * count]
    columns.state[addresses.long()] = values
    expected = {"seed": -5, "choice": 6, "temperature": 0.5, "top_k": 7, "top_p": 0.25}
    expected |= {"prompt_len": 2, "temperature_last": 1, "penalty_slot": -1, "words_count": 4}
    for name, value in expected.items():
        column = columns[name]
        assert column[3] == value
        assert (column[:3] == 0).all() and column[4] == 0
    assert columns.recent[3, 31] == 8 and columns.recent[3, 0] == 9
    assert columns.tables[1, 3].tolist() == [4, 5, 6]
    assert columns.tables.sum() == 15 and columns.pool.sum() == 0


def test_columns_are_padded_and_ids_found() -> None:
    staging = Staging(8, 50, 100, num_slots=2, device="cpu", pinned=False)
    staging.begin()
    at = staging.write_changes()
    staging.write_ids(np.array([7, 8, 9], np.int32))
    staging.write_columns(
        np.array([4, 2]),
        np.array([10, 0]),
        np.array([1, 3]),
        np.array([-1, at], np.int32),
        np.array([0, -1], np.int32),
    )
    staging.send()
    columns = staging.columns(4)
    assert columns.row.tolist() == [4, 2, 0, 0]
    assert columns.start.tolist() == [10, 0, 0, 0]
    assert columns.query_start.tolist() == [0, 1, 4, 4, 4]
    assert columns.line.tolist() == [0, -1, -1, -1]
    assert columns.ids[columns.ids_at[1] :][:3].tolist() == [7, 8, 9]
