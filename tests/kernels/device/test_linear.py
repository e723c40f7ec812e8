"""The one-token linear layer and 8-bit linear layers against their references."""

import pytest
import torch

from octavo.kernels import device as kernels
from octavo.kernels import reference
from octavo.kernels.device.layers.gemv import GemvConfig

FORMS = {
    "plain": {},
    "norm": {"norm": True},
    "norm and swiglu": {"norm": True, "swiglu": True},
    "residual": {"residual": True},
    "bias, norm and swiglu": {"norm": True, "swiglu": True, "bias": True},
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize(("num_rows", "width"), [(5, 60), (123, 576), (64, 1536)])
def test_gemv(device, dtype, assert_close, form, num_rows, width):
    form = dict(form)
    swiglu = form.get("swiglu", False)
    x = torch.randn(1, width, device=device).to(dtype)
    weight = (torch.randn(num_rows * (1 + swiglu), width, device=device) * width**-0.5).to(dtype)
    given = {"swiglu": swiglu}
    if form.get("norm"):
        given["norm_weight"] = torch.randn(width, device=device).to(dtype)
    if form.get("bias"):
        given["bias"] = torch.randn(weight.shape[0], device=device).to(dtype)
    residual = torch.randn(1, num_rows, device=device).to(dtype) if form.get("residual") else None
    wide = {k: v.float() if isinstance(v, torch.Tensor) else v for k, v in given.items()}
    expected_residual = None if residual is None else residual.float().clone()
    expected = reference.gemv(x.float(), weight.float(), residual=expected_residual, **wide)
    got = kernels.gemv(x, weight, residual=residual, **given)
    assert_close(got, expected)
    assert residual is None or got is residual


def test_gemv_in_other_launch_figures_and_into_out(device, assert_close):
    x, weight = torch.randn(1, 700, device=device), torch.randn(33, 700, device=device)
    out = torch.empty(1, 33, device=device)
    for config in (GemvConfig(1, 1024, 4), GemvConfig(16, 128, 2), GemvConfig(2, 256, 8)):
        assert kernels.gemv(x, weight, out=out, config=config) is out
        assert_close(out, reference.gemv(x, weight))


@pytest.mark.parametrize("swiglu", [False, True])
def test_gemv_with_an_8_bit_weight(device, assert_close, swiglu):
    x = torch.randn(1, 640, device=device)
    weight, scale = reference.quantize_weight(torch.randn(48, 640, device=device) * 0.02)
    expected = reference.gemv(x, weight, weight_scale=scale, swiglu=swiglu)
    assert_close(kernels.gemv(x, weight, weight_scale=scale, swiglu=swiglu), expected)


@pytest.mark.parametrize(("num_tokens", "width"), [(1, 64), (63, 123), (5, 2048)])
def test_quantize_tokens(device, dtype, num_tokens, width):
    x = (torch.randn(num_tokens, width, device=device) * 10).to(dtype)
    x[0] = 0
    expected, expected_scale = reference.quantize_tokens(x)
    got, got_scale = kernels.quantize_tokens(x)
    torch.testing.assert_close(got_scale, expected_scale)
    expected, got = expected.float(), got.float()
    right = (got - expected).abs() <= expected.abs().clamp(min=2.0**-6) / 8
    if device == "cpu":
        # Where rounding carries into the exponent, the interpreter loses the carry.
        right |= expected.abs().frexp().mantissa == 0.5
    assert right.all()


@pytest.mark.parametrize(("num_tokens", "width", "num_rows"), [(1, 64, 32), (17, 128, 48)])
def test_fp8_linear(device, num_tokens, width, num_rows):
    x = torch.randn(num_tokens, width, device=device)
    x[0] *= 100
    weight = torch.randn(num_rows, width, device=device) * 0.05
    quantized, scale = reference.quantize_weight(weight)
    tokens, token_scale = reference.quantize_tokens(x)
    expected = reference.fp8_linear(tokens, token_scale, quantized, scale, dtype=torch.float32)
    exact = x @ weight.t()
    assert (expected - exact).norm() < 0.05 * exact.norm()
    got = kernels.fp8_linear(tokens, token_scale, quantized, scale)
    assert (got.float() - expected).norm() < 0.01 * expected.norm()
    assert (got[-1].float() - expected[-1]).norm() < 0.01 * expected[-1].norm()
