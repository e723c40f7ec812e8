"""What each order promises, on a simulated H200 in simulated time: the same figures on every machine."""

from pathlib import Path
from random import Random

import pytest

from octavo.protocol.columns import pack_i32, unpack_i32
from octavo.scheduler_proc.study.__main__ import main
from octavo.scheduler_proc.study.measure import quantile, summarize
from octavo.scheduler_proc.study.simulate import Outcome, Simulation
from octavo.scheduler_proc.study.traces import (
    TRACES,
    VOCAB,
    Arrival,
    agent_loops,
    bursty_chat,
    two_tenants,
)


def words(count: int, seed: int) -> bytes:
    random = Random(seed)
    return pack_i32(random.randrange(10, VOCAB) for _ in range(count))


@pytest.mark.parametrize("name", TRACES)
def test_a_trace_is_the_same_for_the_same_seed(name: str) -> None:
    trace = TRACES[name](20.0, 3.0, 1)
    assert trace and trace == TRACES[name](20.0, 3.0, 1) != TRACES[name](20.0, 3.0, 2)
    assert [arrival.at for arrival in trace] == sorted(arrival.at for arrival in trace)


def test_every_request_of_a_trace_is_answered_to_its_end() -> None:
    trace = bursty_chat(20.0, 3.0)
    run = Simulation(trace, validate=True, num_blocks=150).run()
    for outcome in run.outcomes:
        assert len(outcome.tokens) == outcome.arrival.num_output
    assert run.core.stats.preemptions, "the pool is small enough to matter"


def test_at_twice_the_capacity_deadline_gives_more_goodput_than_fcfs() -> None:
    trace = bursty_chat(60.0, 8.0)

    def goodput(policy: str) -> float:
        run = Simulation(trace, scheduling_policy=policy, target_ttft_ms=1000.0, max_num_seqs=64).run()
        assert all(outcome.finish for outcome in run.outcomes), "nobody starves"
        assert len(run.outcomes) / run.now < 0.6 * 60.0, "the load is about twice the capacity"
        return summarize(run.outcomes, 8.0).goodput

    assert goodput("deadline") >= 1.5 * goodput("fcfs")


@pytest.mark.parametrize("seed", [1, 2])
def test_fair_keeps_a_light_tenant_fast_while_a_greedy_one_floods(seed: int) -> None:
    def light_p99(policy: str, greedy: float) -> float:
        trace = two_tenants(1.5, 16.0, seed, greedy=greedy)
        run = Simulation(trace, scheduling_policy=policy, max_num_batched_tokens=512).run(until=20.0)
        mine = [outcome for outcome in run.outcomes if outcome.arrival.user == "light"]
        return quantile([min(outcome.ttft, 60.0) for outcome in mine], 0.99)

    lone = light_p99("fair", 0.0)
    assert light_p99("fair", 20.0) <= 1.3 * lone
    assert light_p99("fcfs", 20.0) > 3 * lone, "the greedy one does flood"


def test_decodes_keep_their_pace_while_a_long_prompt_is_read() -> None:
    chats = [Arrival(0.0, words(200, seed), 900, 1000) for seed in range(32)]
    reader = Arrival(1.0, words(100_000, 99), 2, 10)
    run = Simulation([*chats, reader], target_itl_ms=20.0).run()
    *others, long = run.outcomes
    gaps = [
        after - before
        for outcome in others
        for before, after in zip(outcome.tokens, outcome.tokens[1:], strict=False)
        if reader.at < before and after < long.tokens[0]
    ]
    assert len(gaps) > 1000
    assert quantile(gaps, 0.99) <= 1.5 * 0.020
    assert long.tokens[0] < 20.0, "and the prompt is read all the same"


def expected_cached(outcomes: list[Outcome], block_size: int) -> list[int]:
    """Prompt tokens that each request finds, when requests come one after the other."""
    seen: set[tuple[int, ...]] = set()
    cached = []
    for outcome in outcomes:
        prompt = tuple(unpack_i32(outcome.arrival.prompt).tolist())
        length = 0
        while length + block_size < len(prompt) and prompt[: length + block_size] in seen:
            length += block_size
        cached.append(length)
        seen |= {prompt[:end] for end in range(block_size, len(prompt) + 1, block_size)}
    return cached


def test_what_agents_find_in_the_cache_is_what_was_there() -> None:
    trace = [
        Arrival(10.0 * at, arrival.prompt, arrival.num_output, arrival.max_tokens)
        for at, arrival in enumerate(agent_loops(8.0, 5.0))
    ]
    run = Simulation(trace, num_blocks=5000, block_size=64, validate=True).run()
    found = [outcome.num_cached for outcome in run.outcomes]
    assert found == expected_cached(run.outcomes, 64)
    assert sum(found) > 0.8 * sum(len(arrival.prompt) // 4 for arrival in trace[1:])


def test_the_command_prints_tables_and_draws(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--trace", "two-tenants", "--seconds", "1", "--policy", "fcfs", "fair"]
    assert main(["policy", *arguments, "--plots", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[4:]] == ["fcfs", "greedy", "light", "fair", "greedy", "light"]
    assert (tmp_path / "two-tenants.png").read_bytes().startswith(b"\x89PNG")
