"""Linear layers in 8 bits, and what stands between two of them, against their references."""

import pytest
import torch

from octavo.kernels import device as kernels
from octavo.kernels import reference


def assert_same_tokens(got, expected):
    """Tokens in 8 bits and scales: numbers are the expected ones or neighbours, unless a sum was near 0."""
    torch.testing.assert_close(got[1], expected[1], rtol=1e-2, atol=0)
    wanted, found = expected[0].float(), got[0].float()
    right = (found - wanted).abs() <= wanted.abs().clamp(min=2.0**-6) / 7
    if got[0].device.type == "cpu":
        # Where rounding carries into the exponent, the interpreter loses the carry.
        right |= wanted.abs().frexp().mantissa == 0.5
    assert right.float().mean() > 0.99


@pytest.mark.parametrize(("num_tokens", "width"), [(1, 64), (63, 123), (5, 2048)])
def test_quantize_tokens(device, dtype, num_tokens, width):
    x = (torch.randn(num_tokens, width, device=device) * 10).to(dtype)
    x[0] = 0
    assert_same_tokens(kernels.quantize_tokens(x), reference.quantize_tokens(x))


@pytest.mark.parametrize("add", [False, True])
@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize(("num_tokens", "hidden"), [(1, 64), (17, 123)])
def test_quantize_rms_norm(device, dtype, assert_close, num_tokens, hidden, scaled, add):
    x = (torch.randn(num_tokens, hidden, device=device) * 10).to(dtype)
    weight = torch.randn(hidden, device=device).to(dtype)
    x_scale = torch.rand(num_tokens, device=device) if scaled else None
    residual = torch.randn(num_tokens, hidden, device=device).to(dtype) if add else None
    expected_residual = None if residual is None else residual.clone()
    expected = reference.quantize_rms_norm(x, weight, 1e-5, residual=expected_residual, x_scale=x_scale)
    assert_same_tokens(
        kernels.quantize_rms_norm(x, weight, 1e-5, residual=residual, x_scale=x_scale), expected
    )
    if residual is not None:
        assert_close(residual, expected_residual)


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize(("num_tokens", "width"), [(1, 60), (5, 1023)])
def test_quantize_silu_mul(device, dtype, num_tokens, width, scaled):
    x = torch.randn(num_tokens, 2 * width, device=device).to(dtype)
    x_scale = torch.rand(num_tokens, device=device) * 5 if scaled else None
    assert_same_tokens(
        kernels.quantize_silu_mul(x, x_scale=x_scale), reference.quantize_silu_mul(x, x_scale=x_scale)
    )


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("num_tokens", "width", "num_rows"), [(1, 64, 32), (17, 128, 48)])
def test_fp8_product_and_scale_tokens(device, num_tokens, width, num_rows, bias):
    x = torch.randn(num_tokens, width, device=device)
    x[0] *= 100
    weight = torch.randn(num_rows, width, device=device) * 0.05
    shift = torch.randn(num_rows, device=device) if bias else None
    quantized, scale = reference.quantize_weight(weight)
    tokens, token_scale = reference.quantize_tokens(x)
    expected = reference.fp8_product(tokens, quantized, scale, dtype=torch.float32)
    reference.scale_tokens(expected, token_scale, bias=shift)
    exact = x @ weight.t() + (0.0 if shift is None else shift)
    assert (expected - exact).norm() < 0.05 * exact.norm()
    for fast in (True, False):
        product = kernels.fp8_product(tokens, quantized, scale, fast_accumulation=fast)
        got = kernels.scale_tokens(product, token_scale, bias=shift)
        assert got is product
        for line in (0, -1):
            assert (got[line].float() - expected[line]).norm() < 0.01 * expected[line].norm()
