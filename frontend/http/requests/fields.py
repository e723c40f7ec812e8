"""Fields of OpenAI's and vLLM's schemas that this server does not act on: accepted, or refused by name.

A field in neither list and in no schema is refused as unknown.
"""

from enum import Enum, auto


class Endpoint(Enum):
    """The schemas that share a list."""

    COMPLETIONS = auto()
    CHAT = auto()
    OTHER = auto()


_OPENAI_IGNORED = (
    "metadata",
    "store",
    "service_tier",
    "prompt_cache_key",
    "prompt_cache_retention",
    "safety_identifier",
)

# Fields that cannot change the text.
IGNORED: dict[Endpoint, tuple[str, ...]] = {
    Endpoint.COMPLETIONS: _OPENAI_IGNORED,
    Endpoint.CHAT: _OPENAI_IGNORED,
    Endpoint.OTHER: (),
}

# Fields that ask for what this server does not have, with the values that ask for nothing.
_Features = dict[str, tuple[object, ...]]

_GENERATION_FEATURES: _Features = {
    "use_beam_search": (False,),
    "length_penalty": (1.0,),
    "guided_json": (),
    "guided_regex": (),
    "guided_choice": (),
    "guided_grammar": (),
    "guided_decoding_backend": (),
    "guided_whitespace_pattern": (),
    "structural_tag": (),
    "logits_processors": ([],),
    "return_tokens_as_token_ids": (False,),
    "kv_transfer_params": (),
    "vllm_xargs": ({},),
    "repetition_detection": (),
}

UNSUPPORTED: dict[Endpoint, _Features] = {
    Endpoint.COMPLETIONS: {
        **_GENERATION_FEATURES,
        "suffix": ("",),
        "prompt_embeds": (),
    },
    Endpoint.CHAT: {
        **_GENERATION_FEATURES,
        "return_token_ids": (False,),
        "functions": ([],),
        "function_call": ("none", "auto"),
        "audio": (),
        "modalities": (["text"],),
        "prediction": (),
        "web_search_options": (),
        "reasoning_effort": (),
        "verbosity": (),
        "thinking_token_budget": (),
        "echo": (False,),
        "mm_processor_kwargs": ({},),
        "media_io_kwargs": ({},),
    },
    Endpoint.OTHER: {},
}
