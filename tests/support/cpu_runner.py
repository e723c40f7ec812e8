"""A CPU runner for a model folder, and the reference answers of transformers."""

import json
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import torch

from octavo.protocol.config import WorkerConfig
from octavo.worker_proc.cpu.load import load_cpu
from octavo.worker_proc.cpu.runner import CpuRunner
from octavo.worker_proc.parallel import ALONE, Ranks
from octavo.worker_proc.phases import StartPhases


def make_cpu_runner(model: Path, ranks: Ranks = ALONE, **fields: object) -> CpuRunner:
    """Load `model` in float32 with room for 32 rows, unless `fields` of the configuration say otherwise."""
    settings = {
        "run_dir": "",
        "scheduler_endpoint": "",
        "lifeline_fd": -1,
        "parent_pid": 0,
        "device": "cpu",
        "model_path": str(model),
        "eos_token_ids": (),
        "max_model_len": 2048,
        "max_num_seqs": 32,
        "num_blocks": 512,
        "dtype": "float32",
        "cpu_threads": 1,
    } | fields
    if "vocab_size" not in settings:
        settings["vocab_size"] = json.loads((model / "config.json").read_text())["vocab_size"]
    return load_cpu(WorkerConfig(**settings), StartPhases("start"), ranks)  # type: ignore[arg-type]


@lru_cache(maxsize=4)
def reference_model(model: Path) -> torch.nn.Module:
    """The model in transformers, float32."""
    from transformers import AutoModelForCausalLM

    loaded: torch.nn.Module = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).eval()
    return loaded


def reference_logits(model: Path, tokens: Sequence[int]) -> torch.Tensor:
    """Logits [len(tokens), vocab] of one forward pass in transformers."""
    with torch.no_grad():
        logits: torch.Tensor = reference_model(model)(torch.tensor([list(tokens)])).logits[0]
    return logits


def reference_greedy(model: Path, prompt: Sequence[int], num_tokens: int) -> list[int]:
    """Greedy tokens of transformers' generate, eos ignored."""
    ids = torch.tensor([list(prompt)])
    with torch.no_grad():
        out = reference_model(model).generate(  # type: ignore[operator]
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=num_tokens,
            do_sample=False,
            eos_token_id=None,
            pad_token_id=0,
        )
    tokens: list[int] = out[0, len(prompt) :].tolist()
    return tokens
