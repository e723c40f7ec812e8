"""What a step is told to compute, and what came of it.

A worker applies a plan in this order: release rows, add rows, append blocks, compute. Plans are executed in
the order of their step numbers, one result each. A row's sampled token stays on the device and is the input
of its next step, so no plan carries it.
"""

from .base import Message, Record
from .lifecycle import Stop, WorkerFailed, WorkerHello, WorkerProgress, WorkerReady
from .replies import LogprobColumns
from .sampling import SamplingParams


class NewRow(Record, frozen=True):
    """A choice takes a row. Its tokens are all that is known: prompt, then output so far."""

    row: int  # 0 .. max_num_seqs-1, free until now
    tokens: bytes  # int32 column
    prompt_len: int  # how many of `tokens` are prompt
    params: SamplingParams  # how its tokens are chosen
    seed: int  # 64-bit
    choice: int  # draws are a function of (seed, choice, absolute position)
    blocks: tuple[bytes, ...]  # int32 column for each KV group: block ids from position 0 on
    bad_words: tuple[bytes, ...] = ()  # int32 columns
    prompt_logprobs: int = (
        -1
    )  # alternatives to report beside each prompt token that is computed; -1: no report


class StepPlan(Message, frozen=True):
    """One step. The columns `row`, `start`, `num_tokens`, `samples` have one entry for each scheduled row."""

    incarnation: int  # of the scheduler; a new one makes the worker forget all rows first
    worker: int  # incarnation of the worker this is meant for
    step: int  # counts up by one from 1 for each scheduler incarnation
    released: bytes  # int32 column: rows that are free now
    new: tuple[NewRow, ...]  # rows that are taken now
    append_row: bytes  # int32 column: one entry for each block added to a row's table
    append_group: bytes  # int32 column: KV group of that block
    append_block: bytes  # int32 column: its id; it goes behind the row's last block of that group
    row: bytes  # int32 column
    start: bytes  # int32 column: position of the first token to compute (num_computed)
    num_tokens: bytes  # int32 column: how many tokens to compute from there
    samples: bytes  # int32 column: 1 when the last of them is the last known token, so a token is drawn


class RowPromptLogprobs(Record, frozen=True):
    """Log-probabilities of some prompt tokens of a row, each given those before it."""

    row: int  # its row
    start: int  # position of the first of them, at least 1
    logprobs: LogprobColumns  # one token for each position from there on


class RowError(Record, frozen=True):
    """One row failed; the others of the step did not."""

    row: int  # its row
    message: str  # one line, for people
    param: str = ""  # the field of the request that is at fault; empty where it is none


class StepResult(Message, frozen=True):
    """What a step drew. `row` and `token` have one entry for each row that sampled, in the plan's order."""

    incarnation: int  # of the worker
    step: int  # of the plan that this answers
    row: bytes  # int32 column
    token: bytes  # int32 column
    device_ms: float  # time on the device
    host_ms: float  # time from taking the plan to having the result
    logprobs: LogprobColumns | None = None  # in the order of `token`
    errors: tuple[RowError, ...] = ()  # rows that drew nothing because they failed
    prompt_logprobs: tuple[RowPromptLogprobs, ...] = ()  # of rows that were to report them


WorkerMessage = WorkerHello | WorkerProgress | WorkerReady | WorkerFailed | StepResult
ToWorker = StepPlan | Stop
