"""Layers in 8-bit floating point, on the CPU's memory with interpreted kernels."""

from pathlib import Path

import pytest
import torch

from octavo.protocol.errors import ModelError
from octavo.worker_proc.cuda.model import Arena, CudaOps
from octavo.worker_proc.cuda.model.fp8 import Fp8Weight
from octavo.worker_proc.cuda.runner import CudaRunner
from octavo.worker_proc.models.layers import Linear
from octavo.worker_proc.models.parameters import Parameters

from ...support.cuda_runner import make_interpreted_runner, watched_logits
from ...support.driver import Driver
from ...support.random_models import make_random_model

pytestmark = pytest.mark.timeout(600)

# Of 3 bits of mantissa a sum of many products is off by 2 to 4 %. Where rounding a token carries into the
# exponent, the interpreter loses the carry, which a device does not.
TOLERANCE = 0.05
INTERPRETED = 0.12
SIZES = {
    "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_size": 64, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16,
}  # fmt: skip


@pytest.mark.parametrize("bias", [False, True])
def test_a_linear_layer_is_that_of_its_weights(bias: bool) -> None:
    ops = CudaOps(Arena("cpu"), "fp8")
    params = Parameters(torch.bfloat16, torch.device("cpu"))
    linear = Linear(params, [("first", 32), ("second", 16)], 64, bias=bias)
    torch.manual_seed(0)
    for slot in params.slots.values():
        slot.normal_(0.0, 0.1)
    assert isinstance(linear.weight, torch.Tensor)
    weight, shift = linear.weight.float(), 0.0 if linear.bias is None else linear.bias.float()
    linear.finish(ops)
    assert isinstance(linear.weight, Fp8Weight) and linear.weight.values.dtype == torch.float8_e4m3fn
    x = torch.randn(5, 64).to(torch.bfloat16)
    x[0] *= 100  # has a scale of its own, so the others lose nothing
    truth = x.float() @ weight.t() + shift
    lone = [ops.linear(row, linear.weight, linear.bias).float().clone() for row in x.split(1)]
    fused = ops.gemv(x[1:2], linear).float()
    for found, tolerance in ((linear(x).float(), INTERPRETED), (torch.cat(lone), TOLERANCE)):
        assert ((found - truth).norm(dim=1) < tolerance * truth.norm(dim=1)).all()
        assert not torch.equal(found, truth.to(torch.bfloat16).float())
    assert torch.equal(fused[0], lone[1][0])


def test_heads_and_odd_shapes_stay_as_they_are() -> None:
    ops = CudaOps(Arena("cpu"), "fp8")
    for pack, weight in ((ops.pack_head, torch.ones(32, 32)), (ops.pack_linear, torch.ones(24, 32))):
        assert pack(weight) is weight
    assert CudaOps(Arena("cpu")).pack_linear(torch.ones(32, 32)).dtype == torch.float32


def test_float16_is_refused() -> None:
    with pytest.raises(ModelError, match="bfloat16"):
        CudaOps(Arena("cpu"), "fp8").pack_linear(torch.ones(32, 32, dtype=torch.float16))


@pytest.mark.parametrize(("num_tokens", "tolerance"), [(1, 0.1), (17, 0.35)])
def test_a_runner_steps_in_8_bits(tmp_path: Path, num_tokens: int, tolerance: float) -> None:
    """One token takes the steps of a lone row. Losses add up; unrelated logits would be off by 1.4."""
    make_random_model(tmp_path, SIZES, spread=0.1)
    prompt = [(j * j + 3) % 256 for j in range(num_tokens)]
    logits = {}
    for quantization in ("", "fp8"):
        runner = make_interpreted_runner(tmp_path, quantization=quantization)
        driver = Driver(runner)
        with watched_logits(runner) as seen:
            driver.generate([driver.add(prompt)], 1)
        logits[quantization] = seen[0][0].float()
        packed = [isinstance(part.weight, Fp8Weight) for part in _linears(runner)]
        assert all(packed) if quantization else not any(packed)
    error = float((logits["fp8"] - logits[""]).norm() / logits[""].norm())
    assert 0 < error < tolerance


def _linears(runner: CudaRunner) -> list[Linear]:
    layers = runner.computation._parts.model.layers
    return [part for layer in layers for part in (layer.qkv, layer.o, layer.gate_up, layer.down)]
