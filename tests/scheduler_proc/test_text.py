"""Scheduling is not visible: every text equals that of a lone run."""

from octavo.protocol.ids import FinishReason

from .world import make_scheduler


def test_one_request() -> None:
    world = make_scheduler()
    sent = world.submit([3, 4, 5, 6, 7], ignore_eos=True)
    world.run()
    assert sent.tokens == world.lone(sent) and len(sent.tokens) == 8
    assert sent.answers[0].finish is FinishReason.LENGTH
    world.check_idle()


def test_more_requests_than_rows() -> None:
    world = make_scheduler(num_blocks=64)
    sent = [world.submit(range(2, 2 + n), ignore_eos=True, seed=n) for n in range(1, 12)]
    world.run()
    for request in sent:
        assert request.ended
        world.check(request)
    world.check_idle()
