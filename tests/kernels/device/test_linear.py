"""The one-token linear layer against its reference."""

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
