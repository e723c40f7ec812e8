"""The formats in which models write calls, by name."""

from dataclasses import dataclass

from .forced import ForcedCall, ForcedCalls
from .hermes import HermesSection
from .llama import LlamaSection
from .mistral import MistralSection
from .pythonic import PythonicSection
from .section import MakeSection


@dataclass(frozen=True)
class ToolFormat:
    """How calls are found in a text."""

    section: MakeSection
    mark: str = ""  # opens a section wherever it stands
    first: str = ""  # a character that opens one at the beginning of the answer
    special_tokens: bool = False  # the marks are special tokens: the text must show them
    id_length: int = 0  # letters and digits of a call's id, where templates ask for that; 0: as OpenAI's


FORMATS = {
    "hermes": ToolFormat(HermesSection, mark="<tool_call>"),
    "llama3_json": ToolFormat(LlamaSection, mark="<|python_tag|>", first="{", special_tokens=True),
    # Mistral's templates refuse ids of any other length.
    "mistral": ToolFormat(MistralSection, mark="[TOOL_CALLS]", special_tokens=True, id_length=9),
    "pythonic": ToolFormat(PythonicSection, mark="<|python_start|>", first="[", special_tokens=True),
}

# What a model is made to write when it must call a tool.
REQUIRED = ToolFormat(ForcedCalls, first="[")


def named(name: str) -> ToolFormat:
    """The format of an answer that is the arguments of this tool and nothing else."""
    return ToolFormat(lambda calls: ForcedCall(calls, name), first="{")


def format_of_template(source: str) -> str | None:
    """The name of the format that a chat template teaches; None when it shows none that is known."""
    if "[TOOL_CALLS]" in source:
        return "mistral"
    if "<tool_call>" in source and "<function=" not in source:
        return "hermes"
    if "[func_name1(" in source:
        return "pythonic"
    if "<|python_tag|>" in source or ("ipython" in source and '"parameters"' in source):
        return "llama3_json"
    return None
