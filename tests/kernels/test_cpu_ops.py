"""The CPU forms against the plain references, at odd sizes."""

from collections.abc import Iterator

import pytest
import torch

from octavo.kernels import cpu, reference

TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 2e-2}
DTYPES = list(TOLERANCE)


@pytest.fixture(params=["native", "torch"])
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """With the native operators, which are for bfloat16, and without."""
    monkeypatch.setenv("OCTAVO_NATIVE", "1" if request.param == "native" else "0")
    cpu.native_ops.cache_clear()
    if request.param == "native" and cpu.native_ops() is None:
        pytest.skip("this machine has no C compiler")
    yield
    cpu.native_ops.cache_clear()


def randn(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(*shape, generator=generator).to(dtype)


def assert_close(found: torch.Tensor, expected: torch.Tensor) -> None:
    error = (found.float() - expected.float()).norm() / expected.float().norm()
    assert found.dtype == expected.dtype
    assert float(error) < TOLERANCE[expected.dtype]


@pytest.mark.usefixtures("form")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1, 63), (5, 576), (3, 4, 24)])
def test_rms_norm(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    x, weight = randn(*shape, dtype=dtype), randn(shape[-1], dtype=dtype)
    before = x.clone()
    assert_close(cpu.rms_norm(x, weight, 1e-5), reference.rms_norm(x, weight, 1e-5))
    assert torch.equal(x, before)


@pytest.mark.usefixtures("form")
@pytest.mark.parametrize("stream", DTYPES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_add_rms_norm(dtype: torch.dtype, stream: torch.dtype) -> None:
    x, residual, weight = randn(7, 60, dtype=dtype), randn(7, 60, dtype=stream) + 1, randn(60, dtype=dtype)
    other = residual.clone()
    assert_close(cpu.add_rms_norm(x, residual, weight, 1e-5), reference.add_rms_norm(x, other, weight, 1e-5))
    assert_close(residual, other)


def test_the_residual_stream_begins_in_float32() -> None:
    table = randn(9, 60, dtype=torch.bfloat16)
    stream = cpu.embed(torch.tensor([8, 0]), table)
    assert torch.equal(stream, table[[8, 0]].float())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("num_tokens", [1, 9])
def test_gated_activations(dtype: torch.dtype, num_tokens: int) -> None:
    x = randn(num_tokens, 2 * 63, dtype=dtype)
    assert_close(cpu.silu_mul(x), reference.silu_mul(x))
    assert_close(cpu.gelu_tanh_mul(x), reference.gelu_tanh_mul(x))


@pytest.mark.usefixtures("form")
@pytest.mark.parametrize("dtype", [*DTYPES, torch.float16])
@pytest.mark.parametrize("num_tokens", [1, 2, 33])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("keep_plain", [False, True])
def test_linear(dtype: torch.dtype, num_tokens: int, bias: bool, keep_plain: bool) -> None:
    x, weight = randn(num_tokens, 60, dtype=dtype), randn(75, 60, dtype=dtype)
    b = randn(75, dtype=dtype) if bias else None
    expected = x.double() @ weight.double().T + (0.0 if b is None else b.double())
    found = cpu.linear(x, cpu.pack_linear(weight, keep_plain=keep_plain), b)
    assert found.dtype == dtype
    assert float((found.double() - expected).norm() / expected.norm()) < 5e-3


@pytest.mark.usefixtures("form")
@pytest.mark.parametrize("dtype", [*DTYPES, torch.float16])
@pytest.mark.parametrize("num_tokens", [1, 33])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("activation", ["silu", "gelu_tanh"])
def test_gated_linear(dtype: torch.dtype, num_tokens: int, bias: bool, activation: str) -> None:
    x, weight = randn(num_tokens, 60, dtype=dtype), randn(2 * 75, 60, dtype=dtype)
    b = randn(2 * 75, dtype=dtype) if bias else None
    whole = (x.double() @ weight.double().T + (0.0 if b is None else b.double())).float()
    expected = reference.silu_mul(whole) if activation == "silu" else reference.gelu_tanh_mul(whole)
    found = cpu.gated_linear(x, cpu.pack_gated(weight, keep_plain=True), b, activation)
    assert found.dtype == dtype
    assert float((found.float() - expected).norm() / expected.norm()) < 1e-2


@pytest.mark.usefixtures("form")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rot_dim", [24, 16])
def test_apply_rope(dtype: torch.dtype, rot_dim: int) -> None:
    cos_sin = randn(100, rot_dim)
    positions = torch.tensor([3, 99, 0, 4, 5])
    fused = randn(5, 8 * 24, dtype=dtype)
    q, k = (x.clone() for x in (fused.view(5, 8, 24)[:, :5], fused.view(5, 8, 24)[:, 5:7]))
    reference.apply_rope(q, k, positions, cos_sin)
    untouched = fused.view(5, 8, 24)[:, 7].clone()
    cpu.apply_rope(fused.view(5, 8, 24)[:, :7], cpu.gather_rope(cos_sin, positions))
    assert_close(fused.view(5, 8, 24)[:, :7], torch.cat((q, k), 1))
    assert torch.equal(fused.view(5, 8, 24)[:, 7], untouched)


STEPS = {
    "one row": [(40, 1)],
    "decodes": [(40, 1), (7, 1), (1, 1), (33, 1)],
    "very different lengths": [(900, 1), (3, 1), (890, 1), (5, 1), (6, 1)],
    "a whole prompt": [(37, 37)],
    "a chunk": [(80, 23)],
    "mixed": [(40, 1), (25, 25), (900, 1), (64, 16), (2, 1)],
    "a chunk of more queries than a mask holds": [(1500, 1300)],
}


@pytest.mark.usefixtures("form")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("window", "softcap"), [(0, 0.0), (20, 0.0), (0, 0.5), (20, 0.5)])
@pytest.mark.parametrize(("heads", "dim"), [((4, 2), 24), ((3, 3), 64), ((6, 1), 128)])
@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("shuffled", [True, False])
def test_attend(
    name: str,
    heads: tuple[int, int],
    dim: int,
    window: int,
    softcap: float,
    dtype: torch.dtype,
    shuffled: bool,
) -> None:
    num_heads, num_kv_heads = heads
    block_size, num_blocks = 16, 400
    rows = STEPS[name]
    seq_lens, counts = [length for length, _ in rows], [count for _, count in rows]
    first = [sum(counts[:row]) for row in range(len(rows))]
    order = torch.randperm(num_blocks, generator=torch.Generator().manual_seed(1)).int()
    order = order if shuffled else order.sort().values
    tables = (
        order[: len(rows) * 100].view(len(rows), -1) if len(rows) <= 4 else order.view(-1, 80)[: len(rows)]
    )
    cache = torch.full((num_blocks * block_size, 2, num_kv_heads, dim), float("nan"), dtype=dtype)
    slots = []
    for row, (length, count) in enumerate(rows):
        positions = torch.arange(length)
        where = tables[row, positions // block_size].long() * block_size + positions % block_size
        cache[where] = randn(length, 2, num_kv_heads, dim, dtype=dtype)
        slots.append(where[length - count :])
    new_slots = torch.cat(slots)
    fused = randn(sum(counts), (num_heads + 2 * num_kv_heads) * dim, dtype=dtype)
    every = fused.view(sum(counts), -1, dim)
    q, kv = every[:, :num_heads], every[:, num_heads:].view(-1, 2, num_kv_heads, dim)
    plan = cpu.plan_attention(
        tables, first, counts, seq_lens, new_slots, block_size=block_size, dtype=dtype, window=window
    )
    found = cpu.attend(q, kv, cache, plan, 0.2, softcap)
    assert torch.equal(cache[new_slots], kv)
    blocks = cache.view(num_blocks, block_size, 2, num_kv_heads, dim)
    expected = reference.paged_attention(
        q,
        blocks[:, :, 0].contiguous(),
        blocks[:, :, 1].contiguous(),
        tables,
        torch.tensor([*first, sum(counts)], dtype=torch.int32),
        torch.tensor(seq_lens, dtype=torch.int32),
        scale=0.2,
        window=window or None,
        softcap=softcap or None,
    )
    assert_close(found.view(expected.shape), expected)


def make_columns(num_rows: int, **fields: torch.Tensor) -> reference.SamplingColumns:
    index = torch.arange(num_rows)
    return reference.SamplingColumns(
        temperature=torch.linspace(0.0, 1.5, num_rows), seed=index * 7, choice=index % 2, **fields
    )


@pytest.mark.usefixtures("form")
@pytest.mark.parametrize("filtered", [False, True])
def test_sample_draws_what_the_reference_draws(filtered: bool) -> None:
    num_rows, vocab = 40, 1000
    fields = {"top_p": torch.full((num_rows,), 0.8), "top_k": torch.full((num_rows,), 50)} if filtered else {}
    columns = make_columns(num_rows, **fields)
    logits, rows = randn(num_rows, vocab) * 2, torch.arange(num_rows)
    greedy = (columns.temperature < reference.GREEDY_BELOW).numpy()
    expected = reference.sample(logits, rows, rows + 5, columns)
    assert torch.equal(cpu.sample(logits, rows, rows + 5, columns, greedy=greedy), expected)
    warm = rows[1:]
    found = cpu.sample(logits[1:], warm, warm + 5, columns, greedy=greedy[1:])
    assert torch.equal(found, expected[1:])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("num_tokens", "top_k"), [(1, 1), (1, 3), (19, 2), (40, 5)])
@pytest.mark.parametrize("renormalize", [True, False])
def test_mix_experts(dtype: torch.dtype, num_tokens: int, top_k: int, renormalize: bool) -> None:
    num_experts, hidden, inner = 5, 24, 15
    x, logits = randn(num_tokens, hidden, dtype=dtype), randn(num_tokens, num_experts, dtype=dtype)
    gate_up = randn(num_experts, 2 * inner, hidden, dtype=dtype)
    down = randn(num_experts, hidden, inner, dtype=dtype)
    routes = cpu.route(logits, top_k=top_k, renormalize=renormalize)
    if renormalize or top_k == num_experts:
        assert torch.allclose(routes.weights.sum(-1), torch.ones(num_tokens))
    found = cpu.mix_experts(
        x, routes, [cpu.pack_linear(part) for part in gate_up], [cpu.pack_linear(part) for part in down]
    )
    assert_close(found, reference.mix_experts(x, routes, gate_up, down))
