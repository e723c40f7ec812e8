"""Who is next: least slack, fair shares, classes that outrank others, and nobody starves."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.protocol.errors import UsageError
from octavo.scheduler_proc.waiting import fair
from octavo.scheduler_proc.waiting.fair import parse_weights

from .world import World, make_scheduler


def one_row(**config: object) -> World:
    """A core that answers one request after the other."""
    return make_scheduler(groups=1, max_num_seqs=1, pipeline_depth=1, **config)


def run_in_order(world: World) -> list[int]:
    """Run to the end; the numbers of the requests in the order in which they ended."""
    ended: list[int] = []
    for _ in range(5000):
        world.turn()
        ended += [n for (_, n), sent in world.sent.items() if sent.ended and n not in ended]
        if not world.plans:
            break
        world.step()
    return ended


def test_the_least_slack_goes_first() -> None:
    world = one_row(scheduling_policy="deadline")
    world.submit([2, 3], max_tokens=4)  # takes the row
    world.turn()
    for timeout in (50.0, 20.0, None, 30.0):
        world.submit([4, 5], max_tokens=2, timeout=timeout)
    assert run_in_order(world) == [0, 2, 4, 1, 3]


def test_who_cannot_be_in_time_lets_others_pass_but_does_not_starve() -> None:
    world = one_row(scheduling_policy="deadline", target_ttft_ms=1000.0)
    world.submit([2, 3], max_tokens=2)
    late = world.submit([4, 5], max_tokens=2)
    world.turn()
    world.turn(seconds=5.0)
    for number in range(30):
        world.submit([6, 7], max_tokens=2, seed=number)
    order = run_in_order(world)
    assert late.submit.request == 1
    assert order.index(1) == 7, "the eighth start is the oldest that is late"


@settings(max_examples=15, deadline=None)
@given(st.randoms(use_true_random=False))
def test_fair_shares_are_even_while_both_wait(random: Random) -> None:
    weight = random.choice([1.0, 2.0, 0.5])
    world = one_row(scheduling_policy="fair", fair_weights=f"b={weight}", max_model_len=64)
    sizes = {}
    for number in range(40):
        prompt, output = [2 + number % 40] * random.randint(1, 20), random.randint(1, 12)
        user = "a" if number < 20 else "b"
        sizes[number] = (user, len(prompt) + 2 * output)
        world.submit(prompt, max_tokens=output, ignore_eos=True, user=user, seed=number, salt=str(number))
    served = {"a": 0.0, "b": 0.0}
    ended = run_in_order(world)
    assert len(ended) == 40
    for at, number in enumerate(ended):
        user, tokens = sizes[number]
        served[user] += tokens / (weight if user == "b" else 1.0)
        rest = {sizes[other][0] for other in ended[at + 1 :]}
        if rest == {"a", "b"}:
            bound = 2 * 44 * max(1.0, 1 / weight)
            assert abs(served["a"] - served["b"]) <= bound, "two of the largest requests apart at most"


def test_a_pause_saves_nothing_up() -> None:
    world = one_row(scheduling_policy="fair")
    world.submit([2] * 3, max_tokens=2, user="b")
    for number in range(10):
        world.submit([3] * 5, max_tokens=5, user="a", seed=number, ignore_eos=True)
    for _ in range(30):
        world.turn()
        world.step()
    for number in range(10):
        world.submit([4] * 5, max_tokens=5, user="b", seed=number, ignore_eos=True)
    order = [("a" if 1 <= number <= 10 else "b") for number in run_in_order(world)]
    assert "bbb" not in "".join(order[:-4]), "who was away takes turns with the other"


def test_users_that_are_gone_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fair, "_MOST_KEPT", 20)
    world = one_row(scheduling_policy="fair")
    for number in range(100):
        world.submit([2, 3], max_tokens=1, user=f"user-{number}")
        world.run()
    assert len(list(world.core.state.order.lines())) <= 20


def test_a_higher_class_takes_the_row_of_a_lower_one() -> None:
    world = one_row(scheduling_policy="priority", num_blocks=40)
    low = world.submit([2] * 5, max_tokens=20, priority=1, ignore_eos=True)
    for _ in range(4):
        world.turn()
        world.step()
    high = world.submit([3] * 5, max_tokens=4, priority=0, ignore_eos=True)
    equal = world.submit([4] * 5, max_tokens=4, priority=0, ignore_eos=True)
    assert run_in_order(world) == [1, 2, 0]
    assert world.core.stats.preemptions == 1
    for sent in (low, high, equal):
        world.check(sent)
    told = [entry.detail for entry in world.core.state.stories.find("req-0") if entry.what == "preempted"]
    assert told == ["choice 0 at 9 tokens: req-1 goes first"]


def test_a_class_ages_past_higher_ones() -> None:
    world = one_row(scheduling_policy="priority")
    world.submit([2] * 5, max_tokens=5, ignore_eos=True)
    world.turn()
    world.submit([3] * 5, max_tokens=5, priority=1)
    world.now += 200.0
    world.submit([4] * 5, max_tokens=5, priority=0)
    assert run_in_order(world) == [0, 1, 2]


@pytest.mark.parametrize("text", ["a", "a=0", "=2", "a=fast", "a=inf"])
def test_wrong_weights_are_named(text: str) -> None:
    with pytest.raises(UsageError, match="fair_weights"):
        parse_weights(text)
