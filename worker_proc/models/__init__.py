"""Model architectures: from config.json to a callable on tokens.

An architecture file reads its config into the traits of the shared decoder. Nothing here knows where weights
come from, what a KV block is, or which device runs the operators.
"""

from .config import ModelConfig
from .decoder import Decoder
from .registry import read_config, supported

__all__ = ["Decoder", "ModelConfig", "read_config", "supported"]
