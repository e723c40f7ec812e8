"""Scheduling is not visible: every text equals that of a lone run."""

import pytest

from octavo.protocol.columns import unpack_i32
from octavo.protocol.ids import FinishReason

from .fake_worker import EOS
from .world import Sent, World, make_scheduler


def check_all(world: World, *requests: Sent) -> None:
    for sent in requests:
        assert sent.ended, world.core.state.stories.find(sent.submit.name)
        world.check(sent)
        for choice, answer in enumerate(sent.answers):
            assert answer.tokens == world.lone(sent, choice)
    world.check_idle()


def test_one_request() -> None:
    world = make_scheduler()
    sent = world.submit([3, 4, 5, 6, 7], ignore_eos=True)
    world.run()
    check_all(world, sent)
    assert len(sent.tokens) == 8 and sent.answers[0].finish is FinishReason.LENGTH


def test_more_requests_than_rows() -> None:
    world = make_scheduler(num_blocks=64)
    check_all_run(world, [world.submit(range(2, 2 + n), ignore_eos=True, seed=n) for n in range(1, 12)])


def check_all_run(world: World, requests: list[Sent]) -> None:
    world.run()
    check_all(world, *requests)


def test_the_next_plan_leaves_before_the_result_is_read() -> None:
    world = make_scheduler()
    sent = world.submit([3, 4, 5], ignore_eos=True, max_tokens=4)
    world.turn()
    first, second = world.plans
    assert unpack_i32(first.num_tokens).tolist() == [3] and unpack_i32(second.start).tolist() == [3]
    assert sent.tokens == []
    world.run()
    check_all(world, sent)
    assert len(world.history) == 4, "an end known by count is never overrun"
    assert world.core.stats.discarded_tokens == 0


def test_an_end_token_costs_one_discarded_token() -> None:
    world = make_scheduler()
    requests = [world.submit([n, n + 1], max_tokens=50, seed=n) for n in range(2, 20)]
    world.run()
    check_all(world, *requests)
    stopped = [sent for sent in requests if sent.answers[0].finish is FinishReason.STOP]
    assert stopped and all(sent.tokens[-1] == EOS and sent.answers[0].stop_token == -1 for sent in stopped)
    assert world.core.stats.discarded_tokens == len(stopped)
    assert world.core.stats.generated_tokens == sum(len(sent.tokens) for sent in requests)


def test_a_stop_token_is_delivered_and_named() -> None:
    world = make_scheduler()
    text = world.lone(world.submit([4, 5, 6], ignore_eos=True, temperature=0.0))
    world.run()
    for stops in ([text[3]], [*range(100, 140), text[3]]):
        stops = [token % 50 for token in stops if token == text[3] or token % 50 not in text]
        sent = world.submit([4, 5, 6], ignore_eos=True, temperature=0.0, stop_token_ids=stops)
        world.run()
        assert sent.tokens == text[: text.index(text[3]) + 1]
        assert (sent.answers[0].finish, sent.answers[0].stop_token) == (FinishReason.STOP, text[3])


def test_many_stop_tokens() -> None:
    world = make_scheduler()
    sent = world.submit([4, 5, 6], ignore_eos=True, stop_token_ids=list(range(10, 50)), max_tokens=30)
    other = world.submit([4, 5, 6], ignore_eos=True, max_tokens=30)
    world.run()
    check_all(world, sent, other)
    assert sent.answers[0].finish is FinishReason.STOP and sent.tokens[-1] >= 10


def test_min_tokens_holds_ends_back() -> None:
    world = make_scheduler()
    every = [token for token in range(50) if token != 7]
    sent = world.submit([4, 5, 6], stop_token_ids=every, min_tokens=5, max_tokens=9)
    world.run()
    check_all(world, sent)
    assert len(sent.tokens) == 6


def test_o40_preemption_changes_no_text() -> None:
    for temperature in (0.0, 1.0):
        # Three blocks of prompt and three of output; the pool holds one and a half requests.
        world = make_scheduler(num_blocks=9, groups=1, max_num_batched_tokens=64)
        world.core.state.lengths.add(1, whole=True)  # the forecast expects short answers
        requests = [
            world.submit(range(2, 14), max_tokens=12, ignore_eos=True, temperature=temperature, seed=seed)
            for seed in (1, 2)
        ]
        world.run()
        check_all(world, *requests)
        assert world.core.stats.preemptions >= 1
        assert [len(sent.tokens) for sent in requests] == [12, 12]


def test_o40_preemption_takes_the_result_in_flight_first() -> None:
    # No row can end by a token or by count: waiting for results frees nothing, so the preempted choice still
    # has tokens in flight, and they are neither lost nor doubled.
    world = make_scheduler(num_blocks=8, groups=1, enable_prefix_caching=False)
    world.core.state.lengths.add(1, whole=True)
    requests = [
        world.submit([2, 3, 4, seed], max_tokens=20, ignore_eos=True, seed=seed) for seed in (2, 3, 4)
    ]
    while not world.core.stats.preemptions:
        world.turn()
        if not world.core.stats.preemptions:
            world.step()
    assert world.core.state.workers[0].late, "preempted with a token in flight"
    world.run()
    check_all(world, *requests)


@pytest.mark.parametrize("extra", [-1, 0, 1, 4])
def test_o41_a_prompt_that_is_cached_whole(extra: int) -> None:
    for groups in (1, 2):
        world = make_scheduler(groups=groups)
        prompt = list(range(2, 2 + 4 + extra))
        first = world.submit(prompt, temperature=0.0, ignore_eos=True)
        world.run()
        second = world.submit(prompt, temperature=0.0, ignore_eos=True)
        world.run()
        check_all(world, first, second)
        start = second.answers[0].start
        assert start is not None and start.num_cached == (len(prompt) - 1) // 4 * 4


def test_o42_a_hit_gives_the_text_of_a_miss() -> None:
    prefix = list(range(2, 2 + 17))
    texts = []
    for caching in (True, False):
        world = make_scheduler(enable_prefix_caching=caching)
        requests = []
        for tail in ([20, 21], [30], [20, 21]):
            requests.append(world.submit([*prefix, *tail], temperature=0.0, ignore_eos=True))
            world.run()
        check_all(world, *requests)
        texts.append([sent.tokens for sent in requests])
        hits = world.core.stats.prefix_hits
        assert (hits > 0) == caching
        assert world.core.stats.prefix_queries == (sum(len(prefix) + n for n in (2, 1, 2)) if caching else 0)
    assert texts[0] == texts[1]


def test_a_prefix_is_shared_while_its_owner_runs() -> None:
    world = make_scheduler()
    first = world.submit(range(2, 18), max_tokens=30, ignore_eos=True)
    for _ in range(3):
        world.turn()
        world.step()
    second = world.submit(range(2, 20), max_tokens=10, ignore_eos=True)
    world.run()
    check_all(world, first, second)
    assert second.answers[0].start is not None and second.answers[0].start.num_cached == 16


def test_salts_do_not_share() -> None:
    world = make_scheduler()
    for salt, cached in (("a", 0), ("b", 0), ("", 0), ("a", 12)):
        sent = world.submit(range(2, 18), salt=salt)
        world.run()
        assert sent.answers[0].start is not None and sent.answers[0].start.num_cached == cached


def test_o43_a_chunk_of_a_prompt_draws_no_token() -> None:
    for length in (15, 16, 17, 32, 33):
        world = make_scheduler(enable_prefix_caching=False)
        running = world.submit([2, 3], max_tokens=40, ignore_eos=True)
        world.turn()
        world.step()
        sent = world.submit(range(2, 2 + length), max_tokens=3, ignore_eos=True)
        while not sent.tokens:
            world.turn()
            world.step()
        assert world.worker is not None
        row = next(row for row in world.worker.rows.values() if row.new.prompt_len == length)
        assert len(row.tokens) > length, "the first token came behind the whole prompt"
        world.run()
        check_all(world, running, sent)


def test_o46_a_row_inherits_nothing() -> None:
    world = make_scheduler(max_num_seqs=1)
    texts = []
    for _ in range(2):
        plain = world.submit([2, 3, 4], temperature=0.0, max_tokens=12)
        world.submit([9, 9], min_tokens=3, stop_token_ids=list(range(2, 40)), max_tokens=9)
        again = world.submit([2, 3, 4], temperature=0.0, max_tokens=12)
        world.run()
        check_all(world, plain, again)
        texts += [plain.tokens, again.tokens]
    assert all(text == texts[0] for text in texts)


@pytest.mark.parametrize("caching", [True, False])
@pytest.mark.parametrize("length", [3, 4, 5, 16, 23])
def test_choices_share_what_the_first_has_read(*, caching: bool, length: int) -> None:
    world = make_scheduler(enable_prefix_caching=caching, max_num_seqs=3)
    sent = world.submit(range(2, 2 + length), n=5, ignore_eos=True)
    world.run()
    check_all(world, sent)
    assert len({tuple(answer.tokens) for answer in sent.answers}) > 1
    assert world.worker is not None
    shared = (length - 1) // 4 * 4
    assert world.worker.computed == length + 4 * (length - shared) + 5 * 7, "the prompt was read once"


def test_a_choice_of_one_token_leaves_its_prompt_to_the_others() -> None:
    world = make_scheduler(enable_prefix_caching=False)
    sent = world.submit(range(2, 19), n=3, max_tokens=1)
    world.run()
    check_all(world, sent)
    assert world.worker is not None and world.worker.computed == 17 + 2 * 1


def test_windows_give_their_blocks_back() -> None:
    # 64 tokens in a window of 9: the pool of the second group holds a sixth of them.
    world = make_scheduler(num_blocks=16, window=9, max_num_seqs=1)
    group = world.core.state.workers[0].memory.groups[1]
    sent = world.submit(range(2, 30), max_tokens=30, ignore_eos=True)
    most = 0
    while not sent.ended:
        world.turn()
        world.step()
        most = max(most, group.pool.num_live)
    world.run()
    check_all(world, sent)
    assert most <= (9 + 16 + 16) // 2 + 2


def test_resumed_choices_go_on_where_they_stopped() -> None:
    world = make_scheduler()
    whole = world.submit([5, 6, 7], n=3, ignore_eos=True, max_tokens=10)
    world.run()
    texts = [answer.tokens for answer in whole.answers]
    again = make_scheduler()
    sent = again.submit(
        [5, 6, 7],
        n=3,
        ignore_eos=True,
        max_tokens=10,
        attempt=1,
        delivered=[texts[0], texts[1][:4], []],
        ended=[0],
    )
    again.run()
    assert [answer.tokens for answer in sent.answers] == texts
    again.check_idle()


def test_a_resumed_choice_that_was_complete_ends_at_once() -> None:
    world = make_scheduler()
    sent = world.submit([5, 6, 7], max_tokens=3, delivered=[[8, 9, 10]])
    world.turn()
    assert sent.answers[0].finish is FinishReason.LENGTH and sent.tokens == [8, 9, 10]
    assert not world.plans
    world.check_idle()
