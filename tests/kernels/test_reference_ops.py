"""The plain definitions against independent ones: loops over dense tensors, torch's own modules."""

import math

import pytest
import torch

from octavo.kernels import reference

F32 = torch.float32


def test_rms_norm_equals_torch():
    x, weight = torch.randn(5, 123), torch.randn(123)
    expected = torch.nn.functional.rms_norm(x, (123,), weight, 1e-5)
    torch.testing.assert_close(reference.rms_norm(x, weight, 1e-5), expected)
    assert reference.rms_norm(x, weight, 1e-5, out=x) is x
    torch.testing.assert_close(x, expected)


def test_add_rms_norm_updates_the_residual_and_norms_the_rounded_sum():
    x, residual = torch.randn(3, 60, dtype=torch.bfloat16), torch.randn(3, 60, dtype=torch.bfloat16)
    weight = torch.randn(60, dtype=torch.bfloat16)
    total = x + residual
    normed = reference.add_rms_norm(x, residual, weight, 1e-6)
    assert torch.equal(residual, total)
    assert torch.equal(normed, reference.rms_norm(total, weight, 1e-6))


@pytest.mark.parametrize("rot_dim", [16, 8])
def test_apply_rope_turns_each_pair_by_its_angle(rot_dim):
    inverse = 10000.0 ** (-torch.arange(0, rot_dim, 2, dtype=F32) / rot_dim)
    angles = torch.outer(torch.arange(50, dtype=F32), inverse)
    cos_sin = torch.cat([angles.cos(), angles.sin()], -1)
    q, k = torch.randn(4, 3, 16), torch.randn(4, 1, 16)
    positions = torch.tensor([0, 7, 3, 49])
    before = torch.cat([q, k], 1).clone()
    reference.apply_rope(q, k, positions, cos_sin)
    after = torch.cat([q, k], 1)
    for token, position in enumerate(positions.tolist()):
        for pair in range(rot_dim // 2):
            first, second = pair, pair + rot_dim // 2
            point = torch.complex(before[token, :, first], before[token, :, second])
            turned = point * torch.polar(torch.tensor(1.0), position * inverse[pair])
            torch.testing.assert_close(after[token, :, first], turned.real, atol=1e-5, rtol=1e-5)
            torch.testing.assert_close(after[token, :, second], turned.imag, atol=1e-5, rtol=1e-5)
    assert torch.equal(after[..., rot_dim:], before[..., rot_dim:])


def test_gated_activations():
    x = torch.randn(3, 2 * 63)
    gate, up = x[:, :63], x[:, 63:]
    torch.testing.assert_close(reference.silu_mul(x), gate / (1 + torch.exp(-gate)) * up)
    inner = math.sqrt(2 / math.pi) * (gate + 0.044715 * gate**3)
    torch.testing.assert_close(reference.gelu_tanh_mul(x), 0.5 * gate * (1 + torch.tanh(inner)) * up)


def test_write_kv_fills_slots_and_skips_negative_ones():
    k_cache, v_cache = torch.zeros(3, 4, 2, 8), torch.zeros(3, 4, 2, 8)
    k, v = torch.randn(3, 2, 8), torch.randn(3, 2, 8)
    reference.write_kv(k, v, k_cache, v_cache, torch.tensor([9, -1, 2]))
    assert torch.equal(k_cache[2, 1], k[0]) and torch.equal(k_cache[0, 2], k[2])
    assert torch.equal(v_cache[2, 1], v[0]) and torch.equal(v_cache[0, 2], v[2])
    assert k_cache.count_nonzero() == 2 * 2 * 8


def naive_attention(q, k, v, first_position, scale, window, softcap):
    """Attention of queries [n, heads, dim] at consecutive positions over k, v [length, kv_heads, dim]."""
    out = torch.empty_like(q)
    group_size = q.shape[1] // k.shape[1]
    for i in range(q.shape[0]):
        position = first_position + i
        first = 0 if window is None else max(0, position - window + 1)
        for head in range(q.shape[1]):
            keys, values = (x[first : position + 1, head // group_size].double() for x in (k, v))
            scores = keys @ q[i, head].double() * scale
            if softcap is not None:
                scores = softcap * torch.tanh(scores / softcap)
            out[i, head] = scores.softmax(0) @ values
    return out


@pytest.mark.parametrize("window", [None, 5])
@pytest.mark.parametrize("softcap", [None, 2.0])
@pytest.mark.parametrize("block_size", [4, 16])
def test_paged_attention_equals_loops_over_dense_keys(block_size, softcap, window):
    # (queries, context): decodes of several lengths, chunks with and without a prefix, a padding row.
    rows = [(1, 1), (1, 23), (7, 7), (0, 0), (5, 30), (1, 17), (2, 9)]
    num_blocks, kv_heads, group_size, dim = 40, 2, 3, 8
    shape = (num_blocks, block_size, kv_heads, dim)
    # Slots that no row owns hold NaN, as memory that nobody cleared may.
    k_cache, v_cache = torch.full(shape, math.nan), torch.full(shape, math.nan)
    free = torch.randperm(num_blocks).tolist()
    tables = torch.randint(0, num_blocks, (len(rows), 8), dtype=torch.int32)
    dense, queries, starts = [], [], [0]
    for row, (n, length) in enumerate(rows):
        k, v = torch.randn(length, kv_heads, dim), torch.randn(length, kv_heads, dim)
        blocks = [free.pop() for _ in range(-(-length // block_size))]
        tables[row, : len(blocks)] = torch.tensor(blocks, dtype=torch.int32)
        slots = torch.tensor([blocks[p // block_size] * block_size + p % block_size for p in range(length)])
        reference.write_kv(k, v, k_cache, v_cache, slots.long())
        dense.append((k, v))
        queries.append(torch.randn(n, kv_heads * group_size, dim))
        starts.append(starts[-1] + n)
    out = reference.paged_attention(
        torch.cat(queries),
        k_cache,
        v_cache,
        tables,
        torch.tensor(starts, dtype=torch.int32),
        torch.tensor([length for _, length in rows], dtype=torch.int32),
        scale=0.3,
        window=window,
        softcap=softcap,
    )
    for row, (n, length) in enumerate(rows):
        expected = naive_attention(queries[row], *dense[row], length - n, 0.3, window, softcap)
        torch.testing.assert_close(out[starts[row] : starts[row + 1]], expected, atol=1e-5, rtol=1e-4)
