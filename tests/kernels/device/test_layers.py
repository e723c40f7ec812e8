"""Triton forms of norms, activations, rotation and cache writes against their references."""

import pytest
import torch

from octavo.kernels import device as kernels
from octavo.kernels import reference


@pytest.mark.parametrize(("num_tokens", "hidden"), [(1, 60), (5, 123), (63, 1024)])
def test_rms_norm(device, dtype, assert_close, num_tokens, hidden):
    x = torch.randn(num_tokens, 2 * hidden, device=device).to(dtype)[:, :hidden]
    weight = torch.randn(hidden, device=device).to(dtype)
    expected = reference.rms_norm(x.float(), weight.float(), 1e-5)
    assert_close(kernels.rms_norm(x, weight, 1e-5), expected)
    assert kernels.rms_norm(x, weight, 1e-5, out=x) is x
    assert_close(x, expected)


@pytest.mark.parametrize(("num_tokens", "hidden"), [(1, 60), (5, 123), (63, 576)])
def test_add_rms_norm(device, dtype, assert_close, num_tokens, hidden):
    x = torch.randn(num_tokens, hidden, device=device).to(dtype)
    residual = torch.randn(num_tokens, hidden, device=device).to(dtype)
    weight = torch.randn(hidden, device=device).to(dtype)
    expected_residual = residual.clone()
    expected = reference.add_rms_norm(x, expected_residual, weight, 1e-5)
    got = kernels.add_rms_norm(x, residual, weight, 1e-5)
    # Not equal: the interpreter cuts off where a device rounds.
    assert_close(residual, expected_residual)
    assert_close(got, expected)


@pytest.mark.parametrize("name", ["silu_mul", "gelu_tanh_mul"])
@pytest.mark.parametrize(("num_tokens", "width"), [(1, 60), (5, 1023), (63, 1536)])
def test_gated_activations(device, dtype, assert_close, name, num_tokens, width):
    x = torch.randn(num_tokens, 2 * width, device=device).to(dtype)
    assert_close(getattr(kernels, name)(x), getattr(reference, name)(x.float()), dtype)


def make_rope(max_positions, rot_dim, device):
    inverse = 10000.0 ** (-torch.arange(0, rot_dim, 2) / rot_dim)
    angles = torch.outer(torch.arange(max_positions).float(), inverse)
    return torch.cat([angles.cos(), angles.sin()], -1).to(device)


def make_qkv(num_tokens, num_heads, num_kv_heads, head_dim, device, dtype):
    """q, k and v as slices of one projection's result, as a model has them."""
    fused = torch.randn(num_tokens, num_heads + 2 * num_kv_heads, head_dim, device=device).to(dtype)
    return fused.split([num_heads, num_kv_heads, num_kv_heads], dim=1)


@pytest.mark.parametrize(
    ("num_heads", "num_kv_heads", "head_dim", "rot_dim"), [(9, 3, 64, 64), (4, 1, 48, 24)]
)
def test_apply_rope(device, dtype, assert_close, num_heads, num_kv_heads, head_dim, rot_dim):
    q, k, _ = make_qkv(7, num_heads, num_kv_heads, head_dim, device, dtype)
    positions = torch.randint(0, 100, (7,), device=device)
    cos_sin = make_rope(100, rot_dim, device)
    expected_q, expected_k = q.float(), k.float()
    expected_q, expected_k = expected_q.clone(), expected_k.clone()
    reference.apply_rope(expected_q, expected_k, positions, cos_sin)
    kernels.apply_rope(q, k, positions, cos_sin)
    assert_close(q, expected_q)
    assert_close(k, expected_k)


@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize(
    ("num_heads", "num_kv_heads", "head_dim", "rot_dim"), [(9, 3, 64, 64), (4, 1, 48, 24), (16, 8, 128, 128)]
)
def test_rope_and_write_kv(
    device, dtype, assert_close, num_heads, num_kv_heads, head_dim, rot_dim, norm, scaled
):
    num_tokens, num_blocks, block_size = 11, 5, 4
    q, k, v = make_qkv(num_tokens, num_heads, num_kv_heads, head_dim, device, dtype)
    positions = torch.randint(0, 100, (num_tokens,), device=device)
    cos_sin = make_rope(100, rot_dim, device)
    slots = torch.randperm(num_blocks * block_size, device=device)[:num_tokens]
    slots[3] = -1
    weights = {"scale": torch.rand(num_tokens, device=device)} if scaled else {}
    if norm:
        for name in ("q_weight", "k_weight"):
            weights[name] = torch.randn(head_dim, device=device).to(dtype)
    shape = (num_blocks, block_size, num_kv_heads, head_dim)
    caches = [torch.zeros(shape, device=device).to(dtype) for _ in range(2)]
    expected_caches = [cache.float() for cache in caches]
    expected_caches = [cache.clone() for cache in expected_caches]
    expected_q = q.float().clone()
    wide_weights = {name: weight.float() for name, weight in weights.items()}
    reference.rope_and_write_kv(
        expected_q, k.float(), v.float(), positions, cos_sin, *expected_caches, slots, **wide_weights
    )
    k_before = k.clone()
    kernels.rope_and_write_kv(q, k, v, positions, cos_sin, *caches, slots, **weights)
    assert_close(q, expected_q)
    assert_close(caches[0], expected_caches[0])
    assert_close(caches[1], expected_caches[1])
    assert scaled or torch.equal(caches[1].float(), expected_caches[1])
    assert torch.equal(k, k_before)


@pytest.mark.parametrize(("num_tokens", "num_kv_heads", "head_dim"), [(1, 1, 60), (63, 3, 64)])
def test_write_kv(device, dtype, num_tokens, num_kv_heads, head_dim):
    _, k, v = make_qkv(num_tokens, 2, num_kv_heads, head_dim, device, dtype)
    slots = torch.randperm(96, device=device)[:num_tokens]
    slots[0] = -1
    expected = [torch.zeros(6, 16, num_kv_heads, head_dim, device=device, dtype=dtype) for _ in range(2)]
    # A key and a value of a token may lie beside each other in one tensor.
    both = torch.zeros(6, 16, 2, num_kv_heads, head_dim, device=device, dtype=dtype)
    reference.write_kv(k, v, *expected, slots)
    kernels.write_kv(k, v, both[:, :, 0], both[:, :, 1], slots)
    assert torch.equal(both[:, :, 0], expected[0])
    assert torch.equal(both[:, :, 1], expected[1])


def test_wrappers_name_the_tensor_that_is_wrong(device):
    x = torch.randn(4, 8, device=device)
    weight = torch.randn(8, device=device)
    with pytest.raises(ValueError, match=r"weight must have shape \(8,\)"):
        kernels.rms_norm(x, weight[:4], 1e-5)
    with pytest.raises(ValueError, match="x must have stride 1"):
        kernels.rms_norm(torch.randn(8, 4, device=device).t(), weight, 1e-5)
    with pytest.raises(ValueError, match=r"out must be torch\.float32"):
        kernels.rms_norm(x, weight, 1e-5, out=x.half())
    with pytest.raises(ValueError, match=r"slots must be torch\.int64"):
        cache = torch.zeros(2, 4, 1, 8, device=device)
        k = torch.zeros(4, 1, 8, device=device)
        kernels.write_kv(k, k, cache, cache.clone(), torch.zeros(4, dtype=torch.int32, device=device))
