"""Every request that waited has a story that names what for, under each order, also when it never ran."""

import pytest

from octavo.protocol.lifecycle import ProcessEnded
from octavo.scheduler_proc.core.events import FromSupervisor
from octavo.scheduler_proc.core.story import StoryLog
from octavo.scheduler_proc.study.simulate import Simulation
from octavo.scheduler_proc.study.traces import Arrival, bursty_chat, long_documents
from octavo.scheduler_proc.waiting.orders import NAMES

from .world import make_scheduler

REASONS = (
    "for a row",
    "for budget",
    "for blocks",
    "for time in the step",
    "for prompts that are being read",
    "for more prompts to share its step",
    "for the next step",
    "for the cache to be searched",
    "like ",  # reads them: another request with the same beginning
)


def names_a_reason(run: Simulation, number: int) -> bool:
    entries = run.core.state.stories.find(f"r{number}")
    told = [entry.detail for entry in entries if entry.what in ("waits", "starts", "finished")]
    return any(reason in detail for detail in told for reason in REASONS)


@pytest.mark.parametrize("policy", NAMES)
@pytest.mark.parametrize(
    ("trace", "config"),
    [
        (bursty_chat(60.0, 6.0), {"max_num_seqs": 32}),
        (bursty_chat(60.0, 6.0, 1), {"max_num_seqs": 64, "num_blocks": 200}),
        (long_documents(15.0, 6.0), {"max_num_seqs": 64, "target_itl_ms": 20.0}),
        (bursty_chat(40.0, 6.0, 2), {"max_num_seqs": 64, "max_batch_delay_ms": 30.0}),
    ],
    ids=["rows", "blocks", "prompts", "gathered"],
)
def test_whoever_waited_is_told_what_for(
    policy: str, trace: list[Arrival], config: dict[str, object]
) -> None:
    trace = trace[:400]  # the newest 512 stories of ended requests are kept
    run = Simulation(trace, scheduling_policy=policy, request_timeout=8.0, **config).run()  # type: ignore[arg-type]
    waited = 0
    for number, outcome in enumerate(run.outcomes):
        never = not outcome.tokens
        if outcome.queued_ms >= 1.0 or never:
            waited += 1
            assert names_a_reason(run, number), run.core.state.stories.find(f"r{number}")
    assert waited > len(trace) / 4


def test_whoever_waits_for_a_worker_or_for_suspects_is_told_so() -> None:
    world = make_scheduler(start=False)
    world.submit([2, 3])
    world.turn()
    world.now += 1.0
    world.start_worker()
    world.run()
    assert any("1001.0 ms for a worker" in entry.detail for entry in world.core.state.stories.find("req-0"))

    world = make_scheduler(max_num_seqs=8)
    for number in range(4):
        world.submit([5 + number] * 6, max_tokens=12, ignore_eos=True)
    world.turn()
    world.plans.clear()
    world.handle(FromSupervisor(world.now, ProcessEnded(0, 0, 4711, True, "was ended by SIGABRT")))
    world.start_worker()
    world.submit([30] * 6)
    world.turn()
    held = [entry.detail for entry in world.core.state.stories.find("req-4") if entry.what == "waits"]
    assert held == ["for others that worker 0 may have failed of"]
    world.run()
    for sent in world.sent.values():
        world.check(sent)


def test_a_long_story_keeps_how_it_began_and_how_it_goes() -> None:
    story = StoryLog(10.0)
    for number in range(100):
        story.note(10.0 + number, f"step {number}")
    told = [entry.what for entry in story.entries()]
    assert told == [
        *(f"step {number}" for number in range(16)),
        "...",
        *(f"step {number}" for number in range(52, 100)),
    ]
    assert [entry.detail for entry in story.entries() if entry.what == "..."] == ["36 more"]
