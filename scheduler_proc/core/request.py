"""A request and its choices: what changes rarely. What changes each step is in `batching.rows`.

A choice is in one of four states:

    FORK ──► WAITING ◄──► RUNNING ──► ENDED        FORK: waits until the first choice has read the prompt
"""

from dataclasses import dataclass, field
from enum import Enum, auto

from ...protocol.ids import FinishReason
from ...protocol.sampling import SamplingParams
from ..memory.kv_cache import Prefix
from ..memory.prefix_cache import DigestChain
from .story import StoryLog

TOKEN_BYTES = 4


class State(Enum):
    """Where a choice is in its life."""

    FORK = auto()
    WAITING = auto()
    RUNNING = auto()
    ENDED = auto()


@dataclass(slots=True, eq=False)
class Request:
    """One `Submit` that was accepted."""

    serial: int  # by arrival
    client: bytes
    client_number: int  # small number of the client, used in columns
    number: int  # the client's number of the request
    attempt: int
    name: str
    prompt: bytes  # int32 column
    params: SamplingParams
    seed: int
    priority: int
    user: str
    bad_words: tuple[bytes, ...]
    arrived: float
    deadline: float  # infinity: none
    max_output: int
    stops: tuple[int, ...]  # tokens that end a choice
    story: StoryLog
    key: float = 0.0  # place in the order
    tenant: int = 0  # number of its user, under the order `fair`
    choices: list["Choice"] = field(default_factory=list)
    open: int = 0  # choices that have not ended
    num_cached: int = -1  # prompt tokens found in the prefix cache, -1 before the look-up
    started: float = -1.0  # when the first step that computes it was planned, -1 before
    is_new: bool = False  # it is in the queue and no step has computed it yet
    counted: bool = False  # its prompt is in the statistics
    num_told: int = 1  # prompt tokens whose log-probabilities the client has; nothing precedes the first
    faults: int = 0  # failures of workers at which it was in flight, since it last got past one
    hold: Prefix | None = None  # references to the full blocks of the prompt, for forks to come
    hold_worker: int = -1  # where those blocks are

    @property
    def prompt_len(self) -> int:
        return len(self.prompt) // TOKEN_BYTES

    @property
    def reads_aloud(self) -> bool:
        """Whether prompt tokens must be computed because their log-probabilities are still to be told."""
        return self.params.prompt_logprobs is not None and self.num_told < self.prompt_len

    @property
    def forks(self) -> list["Choice"]:
        """Choices that wait for the prompt to be read."""
        return [choice for choice in self.choices if choice.state is State.FORK]


@dataclass(slots=True, eq=False, weakref_slot=True)
class Choice:
    """One of the n answers of a request."""

    request: Request
    index: int
    output: bytearray  # int32 column of known output tokens; the newest may still be in the row's tail
    chain: DigestChain = field(init=False)
    state: State = State.FORK
    ticket: int = -1  # place in the queue while WAITING
    mark: tuple[float, dict[str, float]] = (0.0, {})  # when it was queued, see waiting.reasons
    worker: int = -1  # where it runs while RUNNING
    row: int = -1
    tenancy: int = 0  # names one stay in a row; steps in flight remember it
    fresh: bool = True  # no token of it was drawn in this life of the scheduler
    pending: int = 0  # tokens of a former stay that are still in flight
    finish: FinishReason = FinishReason.NONE

    @property
    def num_output(self) -> int:
        """Output tokens in `output`; exact unless RUNNING."""
        return len(self.output) // TOKEN_BYTES

    @property
    def num_known(self) -> int:
        """Prompt and output tokens; exact unless RUNNING."""
        return self.request.prompt_len + self.num_output

    @property
    def max_length(self) -> int:
        return self.request.prompt_len + self.request.max_output

    def token_bytes(self, start: int, end: int) -> bytes:
        """The int32 bytes of positions [start, end) of prompt and output."""
        prompt = self.request.prompt
        first, last = start * TOKEN_BYTES, end * TOKEN_BYTES
        if last <= len(prompt):
            return prompt[first:last]
        behind = bytes(self.output[max(0, first - len(prompt)) : last - len(prompt)])
        return prompt[first:] + behind

    def __str__(self) -> str:
        return f"{self.request.name}[{self.index}] {self.state.name.lower()}"
