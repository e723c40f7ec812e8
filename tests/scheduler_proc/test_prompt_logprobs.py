"""Log-probabilities of prompts: whole and in order, whatever happens to a request: the world checks each."""

from .world import make_scheduler

PROMPT = list(range(10, 40))


def test_a_prompt_in_chunks_is_told_once() -> None:
    world = make_scheduler()
    sent = world.submit(PROMPT, prompt_logprobs=0, max_tokens=3, n=2)
    other = world.submit(PROMPT[:7], max_tokens=3)
    world.run()
    assert sent.told == PROMPT[1:]
    assert other.told == []
    world.check(sent)
    assert [new.prompt_logprobs for plan in world.history for new in plan.new] == [0, -1, -1]


def test_a_prompt_of_one_token_has_nothing_to_tell() -> None:
    world = make_scheduler()
    sent = world.submit([7], prompt_logprobs=3)
    world.run()
    assert sent.told == [] and sent.ended
    assert world.history[0].new[0].prompt_logprobs == -1


def test_o30_a_cached_prompt_is_read_again() -> None:
    world = make_scheduler()
    first = world.submit(PROMPT, prompt_logprobs=1)
    world.run()
    second = world.submit(PROMPT, prompt_logprobs=1)
    world.run()
    plain = world.submit(PROMPT)
    world.run()
    assert first.told == second.told == PROMPT[1:]
    starts = [sent.answers[0].start for sent in (first, second, plain)]
    assert [start.num_cached if start else -1 for start in starts] == [0, 0, 28]
    assert first.tokens == second.tokens == plain.tokens


def test_it_does_not_wait_for_one_that_reads_the_same() -> None:
    world = make_scheduler()
    first = world.submit(PROMPT)
    second = world.submit(PROMPT, prompt_logprobs=1)
    world.run()
    assert second.told == PROMPT[1:]
    assert first.tokens == second.tokens


def test_preemption_and_a_lost_worker_leave_nothing_out() -> None:
    world = make_scheduler(num_blocks=24, max_num_batched_tokens=8)
    sent = [world.submit(PROMPT[:20], prompt_logprobs=0, max_tokens=30, seed=n) for n in range(4)]
    for _ in range(6):
        world.turn()
        world.step()
    world.lose_worker()
    world.turn()
    world.start_worker()
    world.run()
    assert world.core.stats.preemptions
    for one in sent:
        assert one.told == PROMPT[1:20]
        world.check(one)
    world.check_idle()


def test_what_is_told_once_is_not_read_again_for_it() -> None:
    """Behind its first token a preempted request may use the cache like any other."""
    world = make_scheduler()
    sent = world.submit(PROMPT, prompt_logprobs=0, max_tokens=20, ignore_eos=True)
    while not sent.tokens:
        world.turn()
        world.step()
    world.lose_worker()
    world.start_worker()
    world.run()
    assert [new.prompt_logprobs for plan in world.history for new in plan.new] == [0, -1]
    world.check(sent)
