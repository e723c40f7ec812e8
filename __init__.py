"""Octavo serves large language models from a set of small processes.

This module only names the public API. Each name is imported on first use, so that `import octavo` costs
nothing but itself: the heavy parts live in processes of their own.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .frontend.engine.args import AsyncEngineArgs, EngineArgs
    from .frontend.engine.async_engine import AsyncLLMEngine
    from .frontend.engine.beam_search import BeamSearchOutput, BeamSearchParams, BeamSearchSequence
    from .frontend.engine.llm import LLM
    from .frontend.engine.llm_engine import LLMEngine
    from .frontend.engine.outputs import CompletionOutput, Logprob, RequestOutput
    from .protocol.sampling import RequestOutputKind, SamplingParams
    from .protocol.structured import StructuredOutputsParams

__version__ = "0.1.0"

_HOME_OF = {
    "LLM": ".frontend.engine.llm",
    "LLMEngine": ".frontend.engine.llm_engine",
    "AsyncLLMEngine": ".frontend.engine.async_engine",
    "EngineArgs": ".frontend.engine.args",
    "AsyncEngineArgs": ".frontend.engine.args",
    "SamplingParams": ".protocol.sampling",
    "BeamSearchParams": ".frontend.engine.beam_search",
    "BeamSearchOutput": ".frontend.engine.beam_search",
    "BeamSearchSequence": ".frontend.engine.beam_search",
    "RequestOutputKind": ".protocol.sampling",
    "StructuredOutputsParams": ".protocol.structured",
    "RequestOutput": ".frontend.engine.outputs",
    "CompletionOutput": ".frontend.engine.outputs",
    "Logprob": ".frontend.engine.outputs",
}

__all__ = [
    "LLM",
    "AsyncEngineArgs",
    "AsyncLLMEngine",
    "BeamSearchOutput",
    "BeamSearchParams",
    "BeamSearchSequence",
    "CompletionOutput",
    "EngineArgs",
    "LLMEngine",
    "Logprob",
    "RequestOutput",
    "RequestOutputKind",
    "SamplingParams",
    "StructuredOutputsParams",
    "__version__",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'octavo' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(_HOME_OF[name], __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
