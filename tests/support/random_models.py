"""Models of any architecture with random weights, made and answered by transformers."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

VOCAB_SIZE = 301


def make_random_model(folder: Path, config: Mapping[str, Any], *, spread: float = 0.3) -> Any:
    """Write a model folder without a tokenizer for `config`, and return the model in transformers, float32.

    Every parameter is random, biases and norms too, so that none is left out unseen. config.json is what
    `config` says with sizes filled in, and not what transformers would write.
    """
    from transformers import AutoConfig, AutoModelForCausalLM

    full = {
        "vocab_size": VOCAB_SIZE,
        "intermediate_size": 80,
        "num_hidden_layers": 2,
        "rms_norm_eps": 1e-5,
        "max_position_embeddings": 512,
        "tie_word_embeddings": False,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": 0,
        **config,
    }
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "config.json"
    path.write_text(json.dumps(full), encoding="utf-8")
    generator = torch.Generator().manual_seed(0)
    # A mask of sdpa's and a mask of ours must agree, so the plainest attention is the truth.
    loaded = AutoConfig.from_pretrained(folder)
    model = AutoModelForCausalLM.from_config(loaded, attn_implementation="eager").float().eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            mean = 1.0 if parameter.dim() == 1 and "bias" not in name else 0.0
            parameter.normal_(mean, spread, generator=generator)
    model.save_pretrained(folder)
    path.write_text(json.dumps(full), encoding="utf-8")
    return model


def forward(model: Any, tokens: list[int]) -> torch.Tensor:
    """Logits [len(tokens), vocab] of one forward pass."""
    with torch.no_grad():
        logits: torch.Tensor = model(torch.tensor([tokens])).logits[0]
    return logits
