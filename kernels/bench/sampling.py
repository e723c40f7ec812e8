"""From logits to tokens."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from .. import device as kernels
from ..reference import Penalties, SamplingColumns
from .timing import Case


def _columns(num_lines: int, vocab: int, form: str) -> SamplingColumns:
    def floats(value: float) -> Tensor:
        return torch.full((num_lines,), value, device="cuda")

    rows = torch.arange(num_lines, device="cuda")
    columns = SamplingColumns(floats(0.0 if form == "greedy" else 1.0), rows * 7919, rows * 0)
    if form == "top_p 0.9":
        columns = columns._replace(top_p=floats(0.9))
    if form == "top_k 50":
        columns = columns._replace(top_k=floats(50).int())
    if form == "min_p 0.05":
        columns = columns._replace(min_p=floats(0.05))
    if form == "penalties":
        counts = torch.randint(0, 3, (num_lines, vocab), dtype=torch.int32, device="cuda")
        given = (floats(1.1), floats(0.1), floats(0.1))
        columns = columns._replace(penalties=Penalties(counts, rows.int(), *given))
    return columns


def _logits(num_lines: int, vocab: int) -> Tensor:
    """Like a model's: most tokens hopeless, few near the top."""
    logits = torch.randn(num_lines, vocab, device="cuda") * 2
    logits[:, :200] += torch.rand(num_lines, 200, device="cuda") * 12
    return logits.bfloat16()


def _sample(num_lines: int, vocab: int, form: str) -> Callable[[], object]:
    logits, rows = _logits(num_lines, vocab), torch.arange(num_lines, device="cuda")
    columns = _columns(num_lines, vocab, form)
    workspace = kernels.make_sampling_workspace(num_lines, vocab, pool_size=1, device="cuda")
    out = torch.empty(num_lines, dtype=torch.int64, device="cuda")
    return lambda: kernels.sample(logits, rows, rows, columns, workspace=workspace, out=out)


def _logprobs(num_lines: int, vocab: int, k: int) -> Callable[[], object]:
    logits, chosen = _logits(num_lines, vocab), torch.randint(0, vocab, (num_lines,), device="cuda")
    out = kernels.compute_logprobs(logits, chosen, k)
    size = kernels.logprobs_workspace_size(num_lines, vocab, k)
    workspace = torch.empty(size, dtype=torch.float32, device="cuda")
    return lambda: kernels.compute_logprobs(logits, chosen, k, out=out, workspace=workspace)


def sampling_cases() -> Iterator[Case]:
    """The vocabulary of Qwen3; the bound is one read of the logits."""
    vocab = 151936
    forms = ("greedy", "draw", "top_p 0.9", "top_k 50", "min_p 0.05", "penalties")
    for n in (1, 64, 256):
        for form in forms:
            yield Case(f"sample {form}, {n} lines", lambda n=n, f=form: _sample(n, vocab, f), 2 * n * vocab)
    for n in (1, 64):
        for k in (0, 5, 20):
            yield Case(f"logprobs top {k}, {n} lines", lambda n=n, k=k: _logprobs(n, vocab, k), 2 * n * vocab)
