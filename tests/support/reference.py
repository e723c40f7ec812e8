"""What transformers answers, for comparison: greedy ids in float32 on the CPU."""

from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM


@lru_cache(maxsize=4)
def _model(path: Path, dtype: str) -> Any:
    return AutoModelForCausalLM.from_pretrained(path, dtype=getattr(torch, dtype)).eval()


def greedy_ids(
    path: Path, prompt: list[int], max_tokens: int, *, dtype: str = "float32", **options: Any
) -> list[int]:
    """The `max_tokens` greedy tokens after `prompt`; an eos does not end them."""
    ids = torch.tensor([prompt])
    output = _model(path, dtype).generate(
        ids,
        attention_mask=torch.ones_like(ids),
        do_sample=False,
        max_new_tokens=max_tokens,
        eos_token_id=None,
        pad_token_id=0,
        **options,
    )
    result: list[int] = output[0][len(prompt) :].tolist()
    return result


def all_logits(path: Path, ids: list[int], *, dtype: str = "float32") -> torch.Tensor:
    """The logits after each of `ids`, [len(ids), vocab_size], in float32."""
    with torch.inference_mode():
        logits: torch.Tensor = _model(path, dtype)(torch.tensor([ids])).logits[0].float()
    return logits
