"""Paged attention kernels and their work plan against their references."""

import pytest
import torch

from octavo.kernels import device as kernels
from octavo.kernels import reference

DECODES = [(1, 1), (1, 64), (1, 200), (1, 65), (0, 0), (1, 517)]
MIXED = [(5, 5), (1, 130), (40, 173), (0, 0), (2, 2), (1, 63), (130, 130)]
SHAPES = [(9, 3, 64), (4, 4, 32), (8, 1, 80)]


def wide(arguments):
    return [x.float() if x.is_floating_point() else x for x in arguments]


@pytest.mark.parametrize("block_size", [16, 64])
@pytest.mark.parametrize(("num_heads", "num_kv_heads", "head_dim"), SHAPES)
@pytest.mark.parametrize("rows", [DECODES, MIXED], ids=["decodes", "mixed"])
def test_paged_attention(
    make_paged, assert_close, product_dtype, rows, num_heads, num_kv_heads, head_dim, block_size
):
    arguments = make_paged(
        rows,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        block_size=block_size,
        dtype=product_dtype,
    )
    expected = reference.paged_attention(*wide(arguments), scale=head_dim**-0.5)
    got = kernels.paged_attention(*arguments, scale=head_dim**-0.5)
    assert_close(got, expected)


@pytest.mark.parametrize("window", [1, 20, 100])
@pytest.mark.parametrize("block_size", [16, 64])
def test_paged_attention_with_a_window(make_paged, assert_close, window, block_size):
    arguments = make_paged(DECODES + MIXED, num_heads=4, num_kv_heads=2, head_dim=32, block_size=block_size)
    expected = reference.paged_attention(*arguments, scale=0.2, window=window)
    assert_close(kernels.paged_attention(*arguments, scale=0.2, window=window), expected)


def test_paged_attention_with_a_softcap(make_paged, assert_close):
    arguments = make_paged(DECODES + MIXED, num_heads=4, num_kv_heads=2, head_dim=32, block_size=16)
    expected = reference.paged_attention(*arguments, scale=1.0, softcap=3.0)
    assert_close(kernels.paged_attention(*arguments, scale=1.0, softcap=3.0), expected, torch.float16)


def test_a_plan_serves_many_steps_and_permanent_rows(make_paged, assert_close, device):
    """Arrival counters return to 0, stale items are not run, block tables are found through `rows`."""
    plan = kernels.make_attention_plan(8, 300, num_heads=6, num_kv_heads=2, head_dim=32, device=device)
    for rows in ([(1, 1000), (1, 700), (1, 3)], [(1, 2)] * 8, [(100, 300), (1, 900)], [(1, 1500)]):
        q, k_cache, v_cache, tables, starts, lengths = make_paged(
            rows, num_heads=6, num_kv_heads=2, head_dim=32, block_size=16
        )
        index = torch.randperm(8, device=device)[: len(rows)]
        permanent = torch.zeros(8, tables.shape[1], dtype=torch.int32, device=device)
        permanent[index] = tables
        kernels.plan_attention(plan, starts, lengths, num_tokens=q.shape[0])
        expected = reference.paged_attention(q, k_cache, v_cache, tables, starts, lengths, scale=0.2)
        for _ in range(2):
            got = kernels.paged_attention(
                q, k_cache, v_cache, permanent, starts, lengths, scale=0.2, plan=plan, rows=index,
                decodes_only=all(n == 1 for n, _ in rows),
            )  # fmt: skip
            assert_close(got, expected)
        assert not plan.arrivals.any()


@pytest.mark.parametrize("rows", [DECODES, MIXED, [(1, 5000)], [(1, 20)] * 70 + [(1, 9000)]], ids=len)
@pytest.mark.parametrize("min_chunk", [64, 512])
def test_plan_covers_every_context_once(device, rows, min_chunk):
    plan = kernels.make_attention_plan(
        len(rows), 300, num_heads=8, num_kv_heads=8, head_dim=16, device=device
    )
    starts = torch.tensor([0] + [n for n, _ in rows], device=device).cumsum(0).int()
    lengths = torch.tensor([length for _, length in rows], dtype=torch.int32, device=device)
    kernels.plan_attention(plan, starts, lengths, num_tokens=300, min_chunk=min_chunk)
    expected = reference.split_attention(
        starts, lengths, target=plan.target_for(len(rows)), unit=min_chunk, tile_tokens=plan.tile_tokens
    )
    items = list(zip(plan.item_row.tolist(), plan.item_split.tolist(), strict=True))
    items = items[: plan.num_items(len(rows))]
    tiles = list(zip(plan.tile_row.tolist(), plan.tile_index.tolist(), strict=True))
    assert [item for item in items if item[0] >= 0] == expected.items
    assert items[: len(expected.items)] == expected.items
    assert tiles[: len(expected.tiles)] == expected.tiles
    assert int(plan.num_tiles) == len(expected.tiles)
    assert int(plan.chunk) == expected.chunk
    for row, (n, length) in enumerate(rows):
        num_splits = sum(item[0] == row for item in expected.items)
        assert (num_splits - 1) * expected.chunk < length <= num_splits * expected.chunk or n != 1
