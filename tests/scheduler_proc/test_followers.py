"""Prompts that begin alike and come together are computed once."""

from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.scheduler_proc.batching.step_model import StepModel, StepWork

from .world import World, make_scheduler

PROMPT = list(range(2, 42))


def make_world(**config: object) -> World:
    values: dict[str, object] = {"num_blocks": 64, "max_num_batched_tokens": 16, "max_num_seqs": 8}
    return make_scheduler(**(values | config))  # type: ignore[arg-type]


def computed(world: World) -> int:
    assert world.worker is not None
    return world.worker.computed


def test_a_burst_of_one_prompt_is_read_once() -> None:
    world = make_world()
    sent = [world.submit(PROMPT, max_tokens=1, seed=seed) for seed in range(6)]
    world.run()
    for request in sent:
        world.check(request)
    assert computed(world) <= len(PROMPT) + 5 * 8, "each of the others computes its last blocks alone"
    stories = [world.core.state.stories.find(request.submit.name) for request in sent]
    told = [entry.detail for story in stories for entry in story if "reads them" in entry.detail]
    assert told == ["for the 36 tokens that it begins with like req-0, which reads them"] * 5


def test_nobody_waits_for_what_saves_little() -> None:
    world = make_world()
    world.submit(PROMPT, max_tokens=1)
    world.submit(PROMPT[:8] + [45] * 30, max_tokens=1)
    world.run()
    story = world.core.state.stories.find("req-1")
    assert not any("reads them" in entry.detail for entry in story)


def test_other_salts_never_wait_for_each_other() -> None:
    world = make_world()
    for salt in ("a", "b"):
        world.submit(PROMPT, max_tokens=1, salt=salt)
    world.run()
    assert computed(world) >= 2 * len(PROMPT)


def test_without_prefix_caching_nobody_waits() -> None:
    world = make_world(enable_prefix_caching=False)
    for seed in range(2):
        world.submit(PROMPT, max_tokens=1, seed=seed)
    world.run()
    assert computed(world) >= 2 * len(PROMPT)


def test_who_waited_for_an_aborted_request_reads_by_itself() -> None:
    world = make_world()
    first, *others = [world.submit(PROMPT, max_tokens=3, seed=seed) for seed in range(3)]
    world.turn()
    assert world.core.engine_stats().waiting == 2
    world.abort(first)
    world.run()
    for request in others:
        assert request.ended
        world.check(request)
    world.check_idle()


def test_who_waited_on_a_lost_worker_starts_on_the_next() -> None:
    world = make_world()
    sent = [world.submit(PROMPT, max_tokens=3, seed=seed) for seed in range(3)]
    world.turn()
    world.lose_worker()
    world.start_worker()
    world.run()
    for request in sent:
        assert request.ended
        world.check(request)
    world.check_idle()


def test_an_abort_while_waiting_leaves_nothing_behind() -> None:
    world = make_world()
    _, second = [world.submit(PROMPT, max_tokens=3, seed=seed) for seed in range(2)]
    world.turn()
    world.abort(second)
    world.run()
    world.check_idle()


def test_prompts_are_gathered_for_a_common_step() -> None:
    world = make_world(max_batch_delay_ms=20.0, max_num_batched_tokens=100, pipeline_depth=1)
    world.submit([2, 3, 4], max_tokens=1)
    world.turn()
    assert not world.plans and world.core.next_turn() == world.core.state.gather_until
    world.submit([5, 6, 7], max_tokens=1)
    world.turn(seconds=0.025)
    assert len(world.plans) == 1 and len(world.plans[0].new) == 2


def test_a_full_step_is_not_waited_for() -> None:
    world = make_world(max_batch_delay_ms=20.0)
    world.submit(PROMPT, max_tokens=1)
    world.turn()
    assert world.plans


def test_chunks_keep_the_pace_of_decodes() -> None:
    world = make_world(target_itl_ms=10.0, max_num_batched_tokens=512, max_model_len=4096, num_blocks=2000)
    decoding = world.submit([2, 3], max_tokens=200, ignore_eos=True)
    for _ in range(5):
        world.turn()
        world.step()
    reading = world.submit([4 + n % 40 for n in range(3000)], max_tokens=1)
    longest = 0
    while not reading.ended and not decoding.ended:
        # A token takes 0.1 ms, a step 2 ms.
        tokens = sum(int.from_bytes(world.plans[0].num_tokens[at : at + 4], "little") for at in _words(world))
        longest = max(longest, tokens)
        world.step()
        world.turn(seconds=2e-3 + tokens * 1e-4)
    assert reading.answers[0].tokens
    settled = [plan for plan in world.history[-10:] if plan.row]
    assert settled and 40 <= longest <= 512
    last = max(len(plan.row) and _tokens(plan.num_tokens) for plan in world.history[-12:-4])
    assert 40 <= last <= 120, "eighty tokens take 10 ms"


def _words(world: World) -> range:
    return range(0, len(world.plans[0].num_tokens), 4)


def _tokens(column: bytes) -> int:
    return sum(int.from_bytes(column[at : at + 4], "little") for at in range(0, len(column), 4))


@settings(max_examples=30, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 256), st.integers(0, 2048), st.integers(0, 100_000)),
        min_size=80,
        max_size=80,
    )
)
def test_the_model_of_a_step_learns_what_steps_cost(steps: list[tuple[int, int, int]]) -> None:
    def truth(work: StepWork) -> float:
        return 0.012 + work.rows * 2e-5 + work.chunk_tokens * 9e-5 + work.context * 5e-8

    model = StepModel()
    works = [StepWork(rows + 1, tokens, context, tokens * 500.0) for rows, tokens, context in steps]
    for work in works:
        model.learn(work, truth(work) + work.attended * 2e-9)
    for work in works[-5:]:
        if work.chunk_tokens:
            expected = truth(work) + work.attended * 2e-9
            assert abs(model.seconds(work) - expected) < 0.25 * expected
