"""Outputs of each kind, from the same deltas."""

import subprocess
import sys
from pathlib import Path

import pytest

import octavo
from octavo.frontend.engine.assemble import OutputBuilder
from octavo.frontend.engine.client_core import ClientCore
from octavo.frontend.engine.outputs import RequestOutput
from octavo.frontend.engine.stream import Stream
from octavo.protocol.errors import RequestTimeoutError
from octavo.protocol.ids import FinishReason
from octavo.protocol.replies import Deltas
from octavo.protocol.sampling import RequestOutputKind, SamplingParams
from octavo.tests.support.text import tokenizer
from octavo.tests.support.wire import Row, deltas, welcome

CUMULATIVE, DELTA, FINAL_ONLY = RequestOutputKind


class Request:
    """One request, fed by hand."""

    def __init__(self, kind: RequestOutputKind, n: int = 1) -> None:
        self.core = ClientCore(tokenizer("B"), "test", recover=False)
        self.core.on_message(welcome(), 0.0)
        params = SamplingParams(output_kind=kind, n=n, max_tokens=100)
        self.stream: Stream = self.core.submit([5, 6], params, 0.0)
        self.builder = OutputBuilder(self.stream, "r", "p", None)

    def row(self, text: str, start: int, choice: int = 0, *, last: bool = False) -> Row:
        ids = tokenizer("B").encode(text, add_special_tokens=False)
        finish = FinishReason.LENGTH if last else FinishReason.NONE
        return Row(self.stream.number, ids, start, choice=choice, finish=finish)

    def add(self, message: Deltas) -> RequestOutput | None:
        self.core.on_message(message, 1.0)
        return self.builder.add(self.stream.take())


def texts(output: RequestOutput | None) -> list[str] | None:
    return None if output is None else [choice.text for choice in output.outputs]


@pytest.mark.parametrize(
    ("kind", "first", "second"),
    [(CUMULATIVE, ["a"], ["ab"]), (DELTA, ["a"], ["b"]), (FINAL_ONLY, None, ["ab"])],
)
def test_kinds(kind: RequestOutputKind, first: list[str] | None, second: list[str]) -> None:
    request = Request(kind)
    early = request.add(deltas(request.row("a", 0)))
    assert texts(early) == first
    late = request.add(deltas(request.row("b", 1, last=True)))
    assert texts(late) == second and late is not None and late.finished
    assert late.outputs[0].finish_reason == "length" and late.num_cached_tokens == 3
    assert texts(early) == first  # a snapshot, which later tokens do not change


def test_choices_end_one_by_one() -> None:
    request = Request(DELTA, n=2)
    one = request.add(deltas(request.row("a", 0, 1, last=True)))
    assert one is not None and [choice.index for choice in one.outputs] == [1] and not one.finished
    two = request.add(deltas(request.row("b", 0, 0, last=True)))
    assert two is not None and [choice.index for choice in two.outputs] == [0] and two.finished


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (CUMULATIVE, [(0, "ab", "timeout"), (1, "x", "length")]),
        (DELTA, [(0, "b", "timeout")]),
        (FINAL_ONLY, [(0, "ab", "timeout"), (1, "x", "length")]),
    ],
)
def test_failure_keeps_the_tokens_before_it(
    kind: RequestOutputKind, expected: list[tuple[int, str, str]]
) -> None:
    request = Request(kind, n=2)
    request.add(deltas(request.row("a", 0), request.row("x", 0, 1, last=True)))
    fault = Row(
        request.stream.number, start=2, finish=FinishReason.TIMEOUT, fault=("RequestTimeoutError", "late")
    )
    request.core.on_message(deltas(request.row("b", 1), fault), 1.0)
    assert isinstance(request.stream.error, RequestTimeoutError)
    output = request.builder.failed(request.stream.take(), request.stream.error)
    assert [(one.index, one.text, one.finish_reason) for one in output.outputs] == expected
    assert output.finished


def test_engine_loads_no_torch() -> None:
    program = "import sys, octavo; octavo.LLM, octavo.AsyncLLMEngine; print('torch' in sys.modules)"
    folder = Path(octavo.__file__).parent.parent
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=folder)
    assert done.stdout.strip() == "False", done.stderr
