"""Paged attention: decode batches, prompts and mixed steps."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch

from .. import device as kernels
from ..device.attention.decode import DecodeConfig, decode_config
from .timing import Case


class Heads(NamedTuple):
    """The attention shape of a model."""

    name: str
    num_heads: int
    num_kv_heads: int
    head_dim: int


_8B = Heads("8B", 32, 8, 128)
_06B = Heads("0.6B", 16, 8, 128)
_DECODES = {
    "1 x 8k": [8192],
    "16 x 7k": [7000] * 16,
    "64 x 1k": [1024] * 64,
    "256 x 512": [512] * 256,
    "1 x 32k + 63 x 512": [32768] + [512] * 63,
}
# (queries, context) of each row.
_PROMPTS = {
    "4 x 4096": [(4096, 4096)] * 4,
    "4 x 1024 on 8192": [(1024, 9216)] * 4,
    "16 x 256": [(256, 256)] * 16,
    "1985 alone": [(1985, 1985)],
    "1985 + 63 decodes at 800": [(1985, 1985)] + [(1, 800)] * 63,
}


def _make(
    rows: list[tuple[int, int]],
    heads: Heads,
    block_size: int,
    *,
    config: DecodeConfig | None,
    min_chunk: int | None,
) -> Callable[[], object]:
    owned = [-(-length // block_size) for _, length in rows]
    shape = (sum(owned), block_size, heads.num_kv_heads, heads.head_dim)
    caches = [torch.randn(shape, device="cuda", dtype=torch.bfloat16) for _ in range(2)]
    shuffled = torch.randperm(sum(owned), dtype=torch.int32, device="cuda").split(owned)
    tables = torch.zeros(len(rows), max(owned), dtype=torch.int32, device="cuda")
    for row, blocks in enumerate(shuffled):
        tables[row, : len(blocks)] = blocks
    starts = torch.tensor([0] + [n for n, _ in rows], device="cuda").cumsum(0).int()
    lengths = torch.tensor([length for _, length in rows], dtype=torch.int32, device="cuda")
    num_tokens = sum(n for n, _ in rows)
    q = torch.randn(num_tokens, heads.num_heads, heads.head_dim, device="cuda", dtype=torch.bfloat16)
    out = torch.empty_like(q)
    plan = kernels.make_attention_plan(
        len(rows), num_tokens, num_heads=heads.num_heads, num_kv_heads=heads.num_kv_heads,
        head_dim=heads.head_dim, device="cuda",
    )  # fmt: skip
    kernels.plan_attention(plan, starts, lengths, num_tokens=num_tokens, min_chunk=min_chunk)
    return lambda: kernels.paged_attention(
        q, *caches, tables, starts, lengths, scale=heads.head_dim**-0.5, out=out, plan=plan, config=config,
        decodes_only=num_tokens == len(rows),
    )  # fmt: skip


def _case(
    name: str,
    rows: list[tuple[int, int]],
    heads: Heads,
    block_size: int,
    config: DecodeConfig | None = None,
    min_chunk: int | None = None,
) -> Case:
    """A case bound by reading the contexts' keys and values, or by the products of causal attention."""
    head_dim = heads.head_dim
    moved = 4 * sum(length for _, length in rows) * heads.num_kv_heads * head_dim
    moved += 4 * sum(n for n, _ in rows) * heads.num_heads * head_dim
    seen = sum(n * length - n * (n - 1) // 2 for n, length in rows if n > 1)
    flops = 4 * seen * heads.num_heads * head_dim
    label = f"{heads.name} {name}, blocks of {block_size}"
    label += f" {tuple(config)}" if config else ""
    label += f" chunks from {min_chunk}" if min_chunk else ""
    return Case(
        label, lambda: _make(rows, heads, block_size, config=config, min_chunk=min_chunk), moved, flops
    )


def _plan(num_rows: int) -> Callable[[], object]:
    plan = kernels.make_attention_plan(
        num_rows, num_rows, num_heads=32, num_kv_heads=8, head_dim=128, device="cuda"
    )
    starts = torch.arange(num_rows + 1, dtype=torch.int32, device="cuda")
    lengths = torch.randint(1, 4096, (num_rows,), dtype=torch.int32, device="cuda")
    return lambda: kernels.plan_attention(plan, starts, lengths, num_tokens=num_rows)


def attention_cases() -> Iterator[Case]:
    """Contexts of the anchors, then launch figures near the chosen ones on three of them."""
    for block_size in (64, 16):
        for heads in (_8B, _06B):
            for name, lengths in _DECODES.items():
                yield _case(name, [(1, length) for length in lengths], heads, block_size)
            for name, rows in _PROMPTS.items():
                yield _case(name, rows, heads, block_size)
    for n in (1, 64, 256):
        yield Case(f"plan_attention {n} rows", lambda n=n: _plan(n))
    configs = [
        DecodeConfig(*c) for c in ((64, 2, 4), (64, 2, 5), (32, 1, 5), (32, 1, 4), (64, 1, 4), (64, 4, 4))
    ]
    for block_size in (64, 16):
        for name in ("1 x 8k", "16 x 7k", "64 x 1k"):
            rows = [(1, length) for length in _DECODES[name]]
            for config in configs:
                if config != decode_config(block_size):
                    yield _case(name, rows, _8B, block_size, config)
    for min_chunk in (64, 256, 1024):
        yield _case("64 x 1k", [(1, 1024)] * 64, _8B, 64, None, min_chunk)
        yield _case("1 x 256", [(1, 256)], _8B, 64, None, min_chunk)
