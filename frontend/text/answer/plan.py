"""How the answers to one request are read."""

from dataclasses import dataclass

from ..tools.formats import ToolFormat
from ..tools.reader import CallReader
from .reader import AnswerReader
from .reasoning import ReasoningFormat, ReasoningReader


@dataclass(frozen=True)
class AnswerPlan:
    """What to look for in the text of each choice."""

    tools: ToolFormat | None = None  # None: no call is looked for
    names: frozenset[str] = frozenset()  # of the tools
    max_calls: int | None = None  # further ones are dropped
    reasoning: ReasoningFormat | None = None
    opened: bool = False  # the prompt ends inside of reasoning
    shows_reasoning: bool = True

    @property
    def reads(self) -> bool:
        """There is something to look for."""
        return self.tools is not None or self.reasoning is not None

    @property
    def special_tokens(self) -> bool:
        """What to look for is written in special tokens."""
        forms = (self.tools, self.reasoning)
        return any(form.special_tokens for form in forms if form is not None)

    def reader(self) -> AnswerReader:
        """A reader for one choice."""
        reasoning = None if self.reasoning is None else ReasoningReader(self.reasoning, opened=self.opened)
        calls = None if self.tools is None else CallReader(self.tools, self.names)
        return AnswerReader(reasoning, calls, max_calls=self.max_calls, shows_reasoning=self.shows_reasoning)
