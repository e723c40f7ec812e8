"""Random histories: arrivals, aborts, deadlines, stop strings, restarts, tiny pools, n > 1, two KV groups."""

from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from octavo.protocol.columns import unpack_i32
from octavo.protocol.ids import FinishReason
from octavo.protocol.lifecycle import ProcessEnded
from octavo.scheduler_proc.core.events import FromSupervisor
from octavo.scheduler_proc.core.scheduler import Scheduler

from .fake_worker import VOCAB
from .world import IDENTITY, Sent, World, make_scheduler

_PARAMS = (
    "n",
    "max_tokens",
    "min_tokens",
    "temperature",
    "ignore_eos",
    "stop_token_ids",
    "timeout",
    "prompt_logprobs",
)
_PROMPTS = ([5, 6, 7, 8, 9, 10, 11, 12, 13], [5, 6, 7, 8, 20, 21], [30] * 14)


def make_world(random: Random) -> World:
    return make_scheduler(
        num_blocks=random.choice([9, 10, 12, 16, 40]),
        groups=random.randint(1, 2),
        window=random.choice([2, 5, 9, 30]),
        max_model_len=32,
        max_num_seqs=random.randint(1, 6),
        max_num_batched_tokens=random.choice([1, 3, 8, 40]),
        enable_prefix_caching=random.random() < 0.6,
        scheduling_policy=random.choice(["fcfs", "priority", "deadline", "fair"]),
        target_ttft_ms=random.choice([0.0, 5.0]),
        target_itl_ms=random.choice([0.0, 0.0, 3.0, 8.0]),
        max_batch_delay_ms=random.choice([0.0, 0.0, 3.0]),
        fair_weights=random.choice(["", "a=3,b=0.5"]),
        pipeline_depth=random.randint(1, 3),
        start=random.random() < 0.8,
    )


def _submit(random: Random, world: World) -> Sent:
    prompt = random.choice(_PROMPTS)[: random.randint(1, 14)]
    prompt = prompt + [random.randint(2, VOCAB - 1) for _ in range(random.randint(0, 3))]
    max_tokens = random.choice([None, random.randint(1, 14)])
    params: dict[str, object] = {
        "n": random.choice([1, 1, 1, 2, 4]),
        "max_tokens": max_tokens,
        "min_tokens": random.randint(0, min(2, max_tokens or 2)),
        "temperature": random.choice([0.0, 1.0]),
        "ignore_eos": random.random() < 0.5,
        "stop_token_ids": random.choice([[], [3], list(range(20, 40))]),
        "prompt_logprobs": random.choice([None, None, None, 0]),
    }
    seed = random.randint(0, 3)
    delivered: list[list[int]] = []
    if random.random() < 0.2:
        # Taken up again after a restart of the scheduler: part of the text is there already.
        whole = world.submit(prompt, client=b"oracle", number=len(world.sent), seed=seed, **params)
        world.abort(whole)
        if whole.rejected is None:
            texts = [world.lone(whole, choice) for choice in range(len(whole.answers))]
            delivered = [text[: random.randint(0, len(text) - 1)] for text in texts]
    return world.submit(
        prompt,
        client=random.choice([b"client-0", b"client-1"]),
        delivered=delivered,
        priority=random.randint(-1, 1),
        salt=random.choice(["", "a"]),
        user=random.choice(["", "a", "b"]),
        seed=seed,
        timeout=random.choice([None, None, None, 0.004, 0.02]),
        **params,
    )


def _act(random: Random, world: World, sent: list[Sent]) -> None:
    action = random.choice(
        ["submit", "submit", "turn", "step", "step", "step", "step", "abort", "finish", "rare"]
    )
    open_requests = [request for request in sent if not request.ended]
    if action == "submit" and len(sent) < 40:
        sent.append(_submit(random, world))
    elif action == "turn":
        world.turn(random.choice([0.0, 0.001, 0.005]))
    elif action == "step" and world.plans:
        world.step()
        if random.random() < 0.8:
            world.turn()
    elif action == "abort" and open_requests:
        world.abort(random.choice(open_requests))
    elif action == "finish" and open_requests:
        request = random.choice(open_requests)
        choice = random.randrange(len(request.answers))
        answer = request.answers[choice]
        if answer.tokens and not answer.finish:
            world.finish(request, choice, random.randint(0, len(answer.tokens)))
    elif action == "rare":
        _rare(random, world, sent, open_requests)


def _take_up(old: Sent, world: World) -> Sent:
    """Submit a request again, as a client does that met a new scheduler."""
    number, ended = old.submit.request, [at for at, answer in enumerate(old.answers) if answer.finish]
    finishes = [answer.finish for answer in old.answers]
    new = world.submit(
        unpack_i32(old.submit.prompt).tolist(),
        number=number,
        client=old.client,
        attempt=old.submit.attempt + 1,
        delivered=[list(answer.tokens) for answer in old.answers],
        ended=ended,
        seed=old.submit.seed,
        salt=old.submit.cache_salt,
        **{name: getattr(old.submit.params, name) for name in _PARAMS},
    )
    for answer, finish in zip(new.answers, finishes, strict=True):
        answer.finish = answer.finish or finish
    for answer in old.answers:
        answer.finish = answer.finish or FinishReason.ABORT
    return new


def _rare(random: Random, world: World, sent: list[Sent], open_requests: list[Sent]) -> None:
    rare = random.choice(["restart", "lose", "crash", "gone", "again", "higher", "fail", "nothing"])
    if rare == "restart":
        world.start_worker()
    elif rare == "lose":
        world.lose_worker()
    elif rare == "crash" and world.worker is not None:
        world.plans.clear()
        world.worker = None
        world.handle(FromSupervisor(world.now, ProcessEnded(0, 0, 4711, True, "was ended by SIGABRT")))
    elif rare == "gone" and random.random() < 0.3:
        world.client_gone(b"client-1")
    elif rare == "again" and open_requests:
        request = random.choice(open_requests)
        world.client(request.submit, request.client)
    elif rare == "higher" and open_requests:
        sent.append(_take_up(random.choice(open_requests), world))
    elif rare == "fail" and world.worker is not None and random.random() < 0.3:
        world.worker.fail_rows[random.randrange(6)] = "told to fail"


def _check_end(world: World, sent: list[Sent]) -> None:
    for request in sent:
        assert request.ended, (
            f"{request.submit.name} starved: {world.core.state.stories.find(request.submit.name)}"
        )
        world.check(request)
        for choice, answer in enumerate(request.answers):
            if choice in request.submit.ended:
                continue
            if answer.finish is FinishReason.ERROR:
                assert answer.fault is not None and answer.fault.kind == "RequestFailedError"
            if answer.finish is FinishReason.TIMEOUT:
                assert answer.fault is not None and answer.fault.kind == "RequestTimeoutError"
    world.check_idle()
    state = world.core.state
    assert not any(client.requests for client in state.clients.all())
    assert state.stats.generated_tokens + state.stats.discarded_tokens >= 0
    again = Scheduler(world.config, IDENTITY)
    for event, commands in world.events:
        assert again.handle(event) == commands, "a replay gives the same commands"


def check_history(random: Random) -> World:
    world = make_world(random)
    sent: list[Sent] = []
    for _ in range(random.randint(3, 60)):
        _act(random, world, sent)
    if world.worker is None:
        world.start_worker()
    assert world.worker is not None
    world.worker.fail_rows.clear()
    world.run()
    _check_end(world, sent)
    return world


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.randoms(use_true_random=False))
def test_random_histories(random: Random) -> None:
    check_history(random)


@pytest.mark.full
@pytest.mark.timeout(3600)
def test_thousands_of_random_histories() -> None:
    for seed in range(5000):
        check_history(Random(seed))
