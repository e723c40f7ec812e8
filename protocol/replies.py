"""What the scheduler tells a client."""

from .base import Message, Record
from .lifecycle import ModelLimits


class Welcome(Message, frozen=True):
    """Answer to `ClientHello`."""

    incarnation: int  # of this scheduler; a new value means that it knows none of the client's requests
    limits: ModelLimits  # what a request must obey
    ready: bool  # see Status
    reason: str  # see Status


class Status(Message, frozen=True):
    """Whether a generation could run now. Sent when it changes, and in answer to `Alive`."""

    incarnation: int  # of this scheduler, see Welcome
    ready: bool  # a generation could run now
    reason: str  # why not ready, for people: "loading weights 40%", "worker 0 restarting"
    fatal: bool = False  # it will not become ready again


class Accepted(Message, frozen=True):
    """The request is in the queue. Before it every failure is a plain status, after it an error frame."""

    request: int  # client's number of it
    attempt: int  # that this answers
    position: int  # requests ahead of it in the queue
    forecast_ms: float  # expected wait until its first step, -1 when unknown


class Rejected(Message, frozen=True):
    """The request was refused and is forgotten."""

    request: int  # client's number of it
    attempt: int  # that this answers
    kind: str  # class name in protocol.errors
    message: str  # one line, for people
    param: str = ""  # field at fault, if one is
    retry_after: float = 0.0  # seconds, 0 when trying again does not help


class Start(Record, frozen=True):
    """Facts about a choice known at its first token."""

    index: int  # position in the columns of the `Deltas`
    num_cached: int  # prompt tokens found in the prefix cache
    queued_ms: float  # from arrival at the scheduler to the first step that computed it
    prefill_ms: float  # from then to the result that held the first token


class Fault(Record, frozen=True):
    """Why a choice ended with an error or a timeout."""

    index: int  # position in the columns of the `Deltas`
    kind: str  # class name in protocol.errors
    message: str  # one line, for people


class LogprobColumns(Record, frozen=True):
    """Log-probabilities of output tokens, in the order of the token column they belong to.

    A token of a row that asked for k alternatives has k+1 entries: the chosen token, then the k most likely
    by falling probability. A token of a row without logprobs has none.
    """

    counts: bytes  # int32 column, one a token: entries of that token
    tokens: bytes  # int32 column, one an entry
    values: bytes  # float32 column, one an entry: natural logarithms, at most 0
    ranks: bytes  # int32 column, one a token: rank of the chosen token, 1 the most likely; 0 without logprobs


class PromptLogprobs(Record, frozen=True):
    """Log-probabilities of some prompt tokens of a request, each given those before it.

    All come before the first token of a choice, or with it. After a preemption some may come again.
    """

    request: int  # client's number of it
    attempt: int  # as in `Deltas`
    start: int  # position of the first of them in the prompt, at least 1
    logprobs: LogprobColumns  # one token for each position from there on


class Deltas(Message, frozen=True):
    """New tokens and ends of one client's choices: one message a client a step. Columns are equally long."""

    request: bytes  # int64 column: client's numbers
    attempt: bytes  # int32 column: deltas of an attempt that is not the latest are to be dropped
    choice: bytes  # int32 column: 0 .. n-1
    start: bytes  # int32 column: index of the choice's first output token in this message
    count: bytes  # int32 column: how many of `tokens` belong to this entry
    finish: bytes  # int32 column: ids.FinishReason
    stop_token: bytes  # int32 column: the stop_token_id that ended the choice, -1 for none or eos
    tokens: bytes  # int32 column: the output tokens of all entries, one entry behind the other
    starts: tuple[Start, ...] = ()  # for entries that hold a choice's first token
    faults: tuple[Fault, ...] = ()  # for entries that end with an error or a timeout
    logprobs: LogprobColumns | None = None  # in the order of `tokens`; absent when none was asked for
    prompt_logprobs: tuple[PromptLogprobs, ...] = ()  # of requests that asked for them


class EngineStats(Record, frozen=True):
    """Gauges of the scheduler."""

    running: int  # choices in rows
    waiting: int  # choices in the queue
    blocks_total: int  # all groups and workers together
    blocks_live: int  # held by choices
    blocks_cached: int  # free, but reusable as cached prefixes
    preemptions: int  # since start
    prefix_queries: int  # prompt tokens looked up, since start
    prefix_hits: int  # prompt tokens found, since start
    prompt_tokens: int  # prompt tokens computed or found, since start
    generated_tokens: int  # tokens delivered, since start
    discarded_tokens: int  # tokens computed past an end, since start
    steps: int  # steps completed since start


class Snapshot(Message, frozen=True):
    """Answer to `Query` without a name."""

    token: int  # of the query
    stats: EngineStats  # at this moment


class StoryEntry(Record, frozen=True):
    """One thing that happened to a request."""

    at_ms: float  # since the request arrived at the scheduler
    what: str  # "queued", "waits", "step", "preempted", "finished", ...
    detail: str  # numbers and reasons, for people


class Story(Message, frozen=True):
    """Answer to `Query` with a name; no entries when the request is unknown or long gone."""

    token: int  # of the query
    name: str  # of the query
    entries: tuple[StoryEntry, ...]  # in the order they happened


SchedulerReply = Welcome | Status | Accepted | Rejected | Deltas | Snapshot | Story
