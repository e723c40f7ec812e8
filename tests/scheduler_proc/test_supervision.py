"""What the scheduler is told and asked by whoever started it."""

import pytest

from octavo.protocol.lifecycle import ProcessEnded, Progress, Watch
from octavo.scheduler_proc.batching.pace import StepPace
from octavo.scheduler_proc.core.commands import SendSupervisor
from octavo.scheduler_proc.core.events import FromSupervisor

from .world import IDENTITY, World, make_scheduler

PID = 4711  # of every worker of a world


def ask(world: World) -> Progress:
    """Ask for progress; returns the answer, which comes with the next turn and not before."""
    world.handle(FromSupervisor(world.now, Watch(7)))
    world.turn()
    (answer,) = [
        command.message
        for _, commands in world.events[-2:]
        for command in commands
        if isinstance(command, SendSupervisor)
    ]
    return answer


def ended(world: World, pid: int = PID, group: int = 0, rank: int = 0, *, fault: bool = False) -> None:
    world.handle(FromSupervisor(world.now, ProcessEnded(group, rank, pid, fault, "was ended by SIGKILL")))


def test_progress_is_the_number_of_steps() -> None:
    world = make_scheduler()
    assert ask(world) == Progress(7, IDENTITY.incarnation, 0, True, ())
    world.submit([2, 3, 4], ignore_eos=True)
    world.run()
    steps = ask(world).count
    assert steps == world.core.stats.steps > 0


def test_a_scheduler_without_a_worker_says_so() -> None:
    assert not ask(make_scheduler(start=False)).ready


def test_the_end_of_a_worker_s_process_sends_its_requests_back_to_the_queue() -> None:
    world = make_scheduler()
    sent = world.submit([2, 3, 4], max_tokens=12, ignore_eos=True)
    for _ in range(4):
        world.turn()
        world.step()
    world.plans.clear()
    ended(world)
    assert world.core.state.readiness() == (False, "worker 0 is restarting: was ended by SIGKILL")
    assert world.core.engine_stats().waiting == 1
    world.start_worker()
    world.run()
    world.check(sent)
    assert len(sent.tokens) == 12


@pytest.mark.parametrize("who", [{"pid": PID + 1}, {"group": 1}, {"group": -1}, {"rank": 1}, {"rank": -1}])
def test_the_end_of_a_process_that_is_no_worker_here_changes_nothing(who: dict[str, int]) -> None:
    world = make_scheduler()
    ended(world, **who)
    assert world.core.state.workers[0].ready


def test_the_end_of_an_earlier_life_does_not_end_the_next() -> None:
    world = make_scheduler()
    ended(world)
    world.start_worker()
    world.core.state.workers[0].ranks[0].pid = PID + 1
    ended(world)
    assert world.core.state.workers[0].ready


def test_a_step_that_takes_ten_seconds_is_not_yet_stuck_and_one_of_forty_is() -> None:
    world = make_scheduler()
    world.submit([2], max_tokens=12, ignore_eos=True)
    for _ in range(3):
        world.turn()
        world.step()
    world.turn()
    assert world.core.busy
    world.now += 9.0
    assert ask(world).stuck == ()
    world.now += 31.0
    assert ask(world).stuck == (PID,)
    world.step()
    world.turn()
    assert ask(world).stuck == ()


def test_readiness_is_told_unasked_once_somebody_has_asked() -> None:
    world = make_scheduler()
    ask(world)
    ended(world)
    world.turn()
    told = [command for command in world.events[-1][1] if isinstance(command, SendSupervisor)]
    assert [(command.message.token, command.message.ready) for command in told] == [(0, False)]


def test_nothing_is_stuck_while_nothing_is_asked_of_the_worker() -> None:
    world = make_scheduler()
    world.now += 1000.0
    assert ask(world).stuck == ()


def test_the_forecast_of_a_step_follows_steps_of_its_size() -> None:
    pace = StepPace()
    assert pace.forecast(1) < 2.0 < pace.forecast(2048)
    pace.took(0.02, 1)
    assert pace.forecast(1) == 0.02
    assert pace.forecast(4) == 0.08
    pace.took(3.0, 2000)
    assert pace.forecast(1) == 0.02
    assert pace.forecast(1500) == 3.0
    for _ in range(500):
        pace.took(0.01, 1)
    assert pace.forecast(1) == pytest.approx(0.01)
