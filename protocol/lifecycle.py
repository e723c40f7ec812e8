"""How workers join a scheduler, how their ends are told, and how processes are told to stop."""

from .base import Message, Record


class ModelLimits(Record, frozen=True):
    """What a request must obey; the same at every door."""

    model: str  # served name
    vocab_size: int  # rows of the embedding: token ids are 0 .. vocab_size-1
    max_model_len: int  # tokens of prompt and output together
    max_request_tokens: int  # tokens of one request that the KV pool can hold at all
    eos_token_ids: tuple[int, ...]  # tokens that end a choice unless ignore_eos


class KVGroup(Record, frozen=True):
    """Layers that share a block table: same KV shape, same window."""

    num_blocks: int  # in the pool
    block_size: int  # tokens a block
    window: int = 0  # sliding window in tokens, 0 for full attention


class WorkerHello(Message, frozen=True):
    """First message of a worker, sent before anything heavy is loaded."""

    fingerprint: str  # schema of the sender, see codec.FINGERPRINT
    incarnation: int  # of this worker; repeated in all it says
    group: int  # worker group, 0 ..
    rank: int  # tensor parallel rank within the group
    pid: int  # of its process


class WorkerProgress(Message, frozen=True):
    """A worker that is not ready yet says what it does; at least every 2 s while loading."""

    incarnation: int  # of the worker
    phase: str  # "import", "weights", "kernels", ...
    fraction: float  # of the phase, 0 .. 1


class Phase(Record, frozen=True):
    """One timed phase of a worker's start."""

    name: str  # see WorkerProgress
    seconds: float  # it took


class WorkerReady(Message, frozen=True):
    """The worker can execute plans."""

    incarnation: int  # of the worker
    kv_groups: tuple[KVGroup, ...]  # what its KV cache is made of
    max_num_seqs: int  # rows
    max_num_batched_tokens: int  # most tokens in a step
    vocab_size: int  # rows of the embedding
    phases: tuple[Phase, ...]  # of the start, in order; they sum to the total


class WorkerFailed(Message, frozen=True):
    """The worker ends: a start that failed, or a fault it cannot go on from."""

    incarnation: int  # of the worker
    kind: str  # class name in protocol.errors
    message: str  # one line


class Stop(Message, frozen=True):
    """To a worker: finish the step in hand, then exit 0."""


class Watch(Message, frozen=True):
    """From whoever started the processes, each second: is there progress? Answered by `Progress`."""

    token: int  # repeated in the answer, at least 1


class ProcessEnded(Message, frozen=True):
    """From whoever started the processes: a worker's process is gone."""

    group: int  # worker group
    rank: int  # of the worker in it
    pid: int  # of the process
    fault: bool  # it failed by itself; False when somebody outside ended it, who accuses no request
    cause: str  # how it ended, one line for people


class Progress(Message, frozen=True):
    """Answer to `Watch`, and told unasked when a generation can run, or cannot any more."""

    token: int  # of the question, 0 when it is told unasked
    incarnation: int  # of the scheduler; `count` begins anew with each
    count: int  # steps completed, and faults narrowed down to fewer requests
    ready: bool  # a generation could run now
    stuck: tuple[int, ...]  # pids of workers whose step takes longer than any that only is slow


SupervisorMessage = Watch | ProcessEnded
ToSupervisor = Progress
