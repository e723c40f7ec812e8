"""A scheduler core, a worker in memory and clients that check every delta; time moves when told to."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from octavo.protocol.codec import FINGERPRINT
from octavo.protocol.columns import pack_i32, unpack_f32, unpack_i32, unpack_i64
from octavo.protocol.config import SchedulerConfig
from octavo.protocol.ids import FinishReason
from octavo.protocol.lifecycle import KVGroup, Stop, WorkerHello, WorkerReady
from octavo.protocol.replies import (
    Accepted,
    Deltas,
    Fault,
    PromptLogprobs,
    Rejected,
    SchedulerReply,
    Start,
    Status,
)
from octavo.protocol.requests import Abort, ClientMessage, Finish, Submit
from octavo.protocol.sampling import SamplingParams
from octavo.protocol.steps import StepPlan, WorkerMessage
from octavo.scheduler_proc.core.commands import Command, SendClient, SendWorker
from octavo.scheduler_proc.core.events import ClientGone, Event, FromClient, FromWorker, Turn, WorkerGone
from octavo.scheduler_proc.core.scheduler import Scheduler
from octavo.scheduler_proc.core.state import Identity

from .fake_worker import EOS, VOCAB, FakeWorker, lone_text

CLIENT = b"client-0"
IDENTITY = Identity(1000, b"k" * 32)


def make_config(**changes: object) -> SchedulerConfig:
    values: dict[str, object] = {
        "run_dir": "",
        "client_endpoint": "",
        "worker_endpoint": "",
        "lifeline_fd": -1,
        "parent_pid": 0,
        "model": "fake",
        "vocab_size": VOCAB,
        "max_model_len": 64,
        "eos_token_ids": (EOS,),
        "max_num_seqs": 4,
        "max_num_batched_tokens": 16,
        "validate": True,
    }
    return SchedulerConfig(**(values | changes))  # type: ignore[arg-type]


def make_groups(
    num_blocks: int = 32, block_size: int = 4, groups: int = 2, window: int = 9
) -> tuple[KVGroup, ...]:
    """One group of full attention, then one with a sliding window and blocks of half the size."""
    full = KVGroup(num_blocks, block_size)
    return (full, KVGroup(2 * num_blocks, max(1, block_size // 2), window))[:groups]


@dataclass
class Answer:
    """What a client got of one choice."""

    tokens: list[int] = field(default_factory=list)
    finish: FinishReason = FinishReason.NONE
    stop_token: int = -1
    start: Start | None = None
    fault: Fault | None = None


@dataclass
class Sent:
    """A request as its client knows it."""

    submit: Submit
    answers: list[Answer]
    client: bytes
    rejected: Rejected | None = None
    accepted: Accepted | None = None
    told: list[int] = field(default_factory=list)  # prompt tokens whose log-probabilities came

    @property
    def ended(self) -> bool:
        return self.rejected is not None or all(answer.finish for answer in self.answers)

    @property
    def tokens(self) -> list[int]:
        return self.answers[0].tokens


class World:
    """Everything around one core."""

    def __init__(self, config: SchedulerConfig, groups: Sequence[KVGroup]) -> None:
        self.config = config
        self.groups = tuple(groups)
        self.core = Scheduler(config, IDENTITY)
        self.now = 100.0
        self.sent: dict[tuple[bytes, int], Sent] = {}
        self.plans: deque[StepPlan] = deque()  # of worker 0
        self.other_plans: deque[StepPlan] = deque()  # of worker 1, when there are two
        self.history: list[StepPlan] = []
        self.events: list[tuple[Event, list[Command]]] = []
        self.messages: list[SchedulerReply] = []
        self.worker: FakeWorker | None = None
        self.other_worker: FakeWorker | None = None
        self.stopped = 0
        self._incarnations = 50

    # What happens

    def handle(self, event: Event) -> None:
        commands = self.core.handle(event)
        self.events.append((event, commands))
        deltas_to = [
            c.client for c in commands if isinstance(c, SendClient) and isinstance(c.message, Deltas)
        ]
        assert len(deltas_to) == len(set(deltas_to)), "one message a client a step"
        for command in commands:
            if isinstance(command, SendWorker):
                self._take_plan(command)
            elif isinstance(command, SendClient):
                self.messages.append(command.message)
                self._take_reply(command.client, command.message)

    def turn(self, seconds: float = 0.001) -> None:
        self.now += seconds
        self.handle(Turn(self.now))

    def client(self, message: ClientMessage, client: bytes = CLIENT) -> None:
        self.handle(FromClient(self.now, client, message))

    def from_worker(self, message: WorkerMessage, rank: int = 0, index: int = 0) -> None:
        self.handle(FromWorker(self.now, index, rank, message))

    def start_worker(self) -> None:
        """A new life of worker 0 says hello and is ready."""
        self.plans.clear()
        self.worker = self._start(0)

    def start_other_worker(self) -> None:
        """The same for worker 1."""
        self.other_plans.clear()
        self.other_worker = self._start(1)

    def _start(self, index: int) -> FakeWorker:
        self._incarnations += 1
        rows, budget = self.config.max_num_seqs, self.config.max_num_batched_tokens
        worker = FakeWorker(self.groups, rows, budget, self._incarnations)
        for rank in range(self.config.group_size):
            self.from_worker(WorkerHello(FINGERPRINT, self._incarnations, index, rank, 4711), rank, index)
            ready = WorkerReady(self._incarnations, self.groups, rows, budget, VOCAB, ())
            self.from_worker(ready, rank, index)
        return worker

    def lose_worker(self) -> None:
        self.plans.clear()
        self.worker = None
        self.handle(WorkerGone(self.now, 0, 0))

    def submit(
        self,
        prompt: Sequence[int],
        *,
        number: int | None = None,
        attempt: int = 0,
        seed: int = 5,
        client: bytes = CLIENT,
        delivered: Sequence[Sequence[int]] = (),
        ended: Sequence[int] = (),
        priority: int = 0,
        age_ms: float = 0.0,
        salt: str = "",
        user: str = "",
        **params: object,
    ) -> Sent:
        number = len(self.sent) if number is None else number
        sampling = SamplingParams(**({"max_tokens": 8} | params))  # type: ignore[arg-type]
        message = Submit(
            request=number,
            attempt=attempt,
            name=f"req-{number}",
            prompt=pack_i32(prompt),
            params=sampling,
            seed=seed,
            priority=priority,
            age_ms=age_ms,
            cache_salt=salt,
            user=user,
            delivered=tuple(pack_i32(tokens) for tokens in delivered),
            ended=tuple(ended),
        )
        answers = [Answer(list(delivered[i]) if delivered else []) for i in range(sampling.n)]
        for index in ended:
            answers[index].finish = FinishReason.STOP
        self.sent[client, number] = sent = Sent(message, answers, client)
        self.client(message, client)
        return sent

    def abort(self, sent: Sent) -> None:
        self.client(Abort(sent.submit.request), sent.client)
        for answer in sent.answers:
            answer.finish = answer.finish or FinishReason.ABORT

    def finish(self, sent: Sent, choice: int, num_output: int) -> None:
        self.client(Finish(sent.submit.request, choice, num_output), sent.client)
        answer = sent.answers[choice]
        del answer.tokens[num_output:]
        answer.finish = FinishReason.STOP

    def client_gone(self, client: bytes = CLIENT) -> None:
        self.handle(ClientGone(self.now, client))
        for sent in self.sent.values():
            if sent.client == client:
                for answer in sent.answers:
                    answer.finish = answer.finish or FinishReason.ABORT

    # What the worker does

    def step(self) -> None:
        """Each worker finishes its oldest plan."""
        if self.plans:
            assert self.worker is not None
            self.from_worker(self.worker.execute(self.plans.popleft()))
        if self.other_plans:
            assert self.other_worker is not None
            self.from_worker(self.other_worker.execute(self.other_plans.popleft()), index=1)

    def run(self, most: int = 2000) -> None:
        """Turn after turn until nothing is left to do."""
        for _ in range(most):
            self.turn()
            if not self.plans and not self.other_plans:
                if self.core.state.gather_until < float("inf") or self.core.next_turn() == 0.0:
                    continue
                break
            self.step()
        else:
            raise AssertionError(f"no end after {most} steps")

    # What must be

    def lone(self, sent: Sent, choice: int = 0) -> list[int]:
        prompt = unpack_i32(sent.submit.prompt).tolist()
        room = min(self.config.max_model_len, self.core.state.limits().max_request_tokens) - len(prompt)
        return lone_text(prompt, sent.submit.params, sent.submit.seed, choice, self.groups, room)

    def check(self, sent: Sent) -> None:
        """Every choice that ended by itself has the text of a lone run, and all others a part of it."""
        for choice, answer in enumerate(sent.answers):
            expected = self.lone(sent, choice)
            if answer.finish in (FinishReason.STOP, FinishReason.LENGTH) and choice not in sent.submit.ended:
                assert answer.tokens == expected[: len(answer.tokens)]
                own_end = answer.tokens == expected
                assert own_end or answer.finish is FinishReason.STOP
            else:
                assert answer.tokens == expected[: len(answer.tokens)]

    def check_idle(self) -> None:
        stats = self.core.engine_stats()
        assert (stats.running, stats.waiting, stats.blocks_live) == (0, 0, 0)

    # Private

    def _take_plan(self, command: SendWorker) -> None:
        if isinstance(command.message, Stop):
            self.stopped += 1
            return
        if command.rank:
            return
        plans, worker = (
            (self.plans, self.worker) if command.worker == 0 else (self.other_plans, self.other_worker)
        )
        assert worker is not None, "plans go to workers that are ready"
        assert len(plans) < self.config.pipeline_depth
        plans.append(command.message)
        self.history.append(command.message)

    def _take_reply(self, client: bytes, message: SchedulerReply) -> None:
        match message:
            case Accepted():
                self.sent[client, message.request].accepted = message
            case Rejected():
                self.sent[client, message.request].rejected = message
            case Deltas():
                self._take_deltas(client, message)
            case Status():
                pass

    def _take_deltas(self, client: bytes, deltas: Deltas) -> None:
        for part in deltas.prompt_logprobs:
            self._take_prompt(self.sent[client, part.request], part)
        tokens = unpack_i32(deltas.tokens).tolist()
        requests = unpack_i64(deltas.request).tolist()
        small = (deltas.attempt, deltas.choice, deltas.start, deltas.count, deltas.finish, deltas.stop_token)
        lines = list(zip(requests, *(unpack_i32(column).tolist() for column in small), strict=True))
        starts = {start.index: start for start in deltas.starts}
        faults = {fault.index: fault for fault in deltas.faults}
        for index, (request, attempt, choice, start, count, finish, stop_token) in enumerate(lines):
            mine, tokens = tokens[:count], tokens[count:]
            sent = self.sent[client, request]
            answer = sent.answers[choice]
            if attempt != sent.submit.attempt or answer.finish:
                continue
            assert sent.accepted is not None, "nothing comes before Accepted"
            assert start == len(answer.tokens), "no token is lost or doubled"
            if count and sent.submit.params.prompt_logprobs is not None:
                assert sent.told == unpack_i32(sent.submit.prompt).tolist()[1:], "the prompt is told first"
            answer.tokens += mine
            answer.finish, answer.stop_token = FinishReason(finish), stop_token
            answer.start = starts.get(index, answer.start)
            answer.fault = faults.get(index, answer.fault)
        assert not tokens

    def _take_prompt(self, sent: Sent, part: PromptLogprobs) -> None:
        if part.attempt != sent.submit.attempt:
            return
        next_position = len(sent.told) + 1
        assert 1 <= part.start <= next_position, "no prompt token is left out"
        tokens = unpack_i32(part.logprobs.tokens).tolist()
        assert unpack_f32(part.logprobs.values).tolist() == [
            -float(part.start + i) for i in range(len(tokens))
        ]
        sent.told += tokens[next_position - part.start :]


def make_scheduler(
    *,
    num_blocks: int = 32,
    block_size: int = 4,
    groups: int = 2,
    window: int = 9,
    start: bool = True,
    **config: object,
) -> World:
    """A core with a ready worker, two KV groups unless said otherwise."""
    world = World(make_config(**config), make_groups(num_blocks, block_size, groups, window))
    if start:
        world.start_worker()
    return world
