"""From logits to tokens for permanent rows: parameters kept by row, rules applied only where they are on."""

from .prompt import PromptReader
from .sampler import Drawn, Sampler

__all__ = ["Drawn", "PromptReader", "Sampler"]
