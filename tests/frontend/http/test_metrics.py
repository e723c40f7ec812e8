"""Metrics of requests: exact, never falling, never fatal."""

import re
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client import CollectorRegistry

from octavo.frontend.http.metrics.page import metrics_page
from octavo.frontend.http.metrics.pending import PendingHistogram
from octavo.frontend.http.metrics.requests import RequestMetrics, RequestSummary
from octavo.protocol.replies import Rejected
from octavo.protocol.requests import Submit
from octavo.tests.support.events import post_stream
from octavo.tests.support.http_frontend import HttpFrontend, http_frontend
from octavo.tests.support.waiting import wait_until

COMPLETIONS = "/v1/completions"


def read(http: httpx.Client) -> dict[str, float]:
    """All samples by name and labels, as they stand on the page."""
    samples = (line.rpartition(" ") for line in http.get("/metrics").text.splitlines() if line[0] != "#")
    return {name: float(value) for name, _, value in samples}


def test_o58_what_is_counted_adds_up(folder: Path) -> None:
    with http_frontend(folder) as frontend:
        before = read(frontend.http)
        frontend.scheduler.step_seconds = 0.002
        delivered = prompt_tokens = 0
        for number in range(20):
            body: dict[str, Any] = {"prompt": "the cat", "n": 1 + number % 2, "max_tokens": 2 + number % 5}
            if number % 3:
                usage = frontend.http.post(COMPLETIONS, json=body).json()["usage"]
            else:
                body["stream_options"] = {"include_usage": True}
                usage = post_stream(frontend.http, COMPLETIONS, body).chunks[-1]["usage"]
            delivered += usage["completion_tokens"]
            prompt_tokens += usage["prompt_tokens"]
            after = read(frontend.http)
            fell = [name for name, value in after.items() if value < before.get(name, 0.0)]
            assert fell == []
            before = after
        frontend.say("abc", eos=False)
        body = {"prompt": "x", "stream": True, "max_tokens": 250}
        with frontend.http.stream("POST", COMPLETIONS, json=body) as stream:
            next(stream.iter_bytes())
        aborted = 'octavo_request_success_total{finished_reason="abort"}'
        wait_until(lambda: aborted in read(frontend.http), within=5, what="the abort is counted")
        end = read(frontend.http)
        sent = sum(value for name, value in end.items() if name.startswith("octavo_request_success_total"))
        assert sent == 21
        assert end["octavo_prompt_tokens_total"] == prompt_tokens + 1
        assert end["octavo_generation_tokens_total"] >= delivered + 1
        assert end["octavo_generation_tokens_total"] == end["octavo_request_generation_tokens_sum"]
        assert end["octavo_time_to_first_token_seconds_count"] == 21
        assert end["octavo_e2e_request_latency_seconds_count"] == 21
        assert end["octavo_request_queue_time_seconds_sum"] == pytest.approx(21 * 0.002)
        for name, value in end.items():
            if name.endswith('le="+Inf"}'):
                assert end[re.sub(r'_bucket{le="\+Inf"}', "_count", name)] == value


def test_every_answer_is_counted_under_its_route(frontend: HttpFrontend) -> None:
    def counted(route: str, status: int, method: str = "GET") -> float:
        labels = f'{{method="{method}",route="{route}",status="{status}"}}'
        return read(frontend.http).get(f"octavo_http_requests_total{labels}", 0.0)

    before = counted("/v1/models/{model:path}", 404), counted("other", 404), counted(COMPLETIONS, 400, "POST")
    frontend.http.get("/v1/models/nope")
    frontend.http.get("/wp-login.php")
    frontend.http.post(COMPLETIONS, json={"n": 0})
    after = counted("/v1/models/{model:path}", 404), counted("other", 404), counted(COMPLETIONS, 400, "POST")
    assert after == tuple(count + 1 for count in before)


def test_o58_a_failing_metric_fails_no_request(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*values: object, **labels: object) -> None:
        raise ValueError("negative increment")

    with http_frontend(folder) as frontend:
        monkeypatch.setattr(PendingHistogram, "flush", fail)
        for _ in range(3):
            assert frontend.http.post(COMPLETIONS, json={"prompt": "x"}).status_code == 200
            assert post_stream(frontend.http, COMPLETIONS, {"prompt": "x"}).done


def test_prompts_of_requests_that_never_began_are_not_counted(folder: Path) -> None:
    with http_frontend(folder) as frontend:
        frontend.scheduler.go.clear()
        body = {"prompt": [50] * 99, "stream": True}
        with frontend.http.stream("POST", COMPLETIONS, json=body):
            frontend.scheduler.expect(Submit)
        frontend.scheduler.go.set()
        aborted = 'octavo_request_success_total{finished_reason="abort"}'
        wait_until(lambda: aborted in read(frontend.http), within=5, what="the abort is counted")
        assert read(frontend.http)["octavo_prompt_tokens_total"] == 0


def test_names_can_have_another_prefix() -> None:
    registry = CollectorRegistry()
    RequestMetrics(registry).tokens(3)
    page = metrics_page(registry, None, "vllm:").decode()
    assert "vllm:generation_tokens_total" in page
    assert "# TYPE vllm:time_to_first_token_seconds histogram" in page
    assert "octavo_" not in page


def test_a_pending_histogram_is_a_histogram() -> None:
    registry = CollectorRegistry()
    pending = PendingHistogram("x_seconds", "text", (0.001, 0.01), registry)
    for value, times in [(0.0005, 1), (0.001, 2), (0.002, 3), (5.0, 4)]:
        pending.add(value, times)
    assert registry.get_sample_value("x_seconds_count") == 0
    pending.flush()
    pending.flush()
    for bound, count in [("0.001", 3), ("0.01", 6), ("+Inf", 10)]:
        assert registry.get_sample_value("x_seconds_bucket", {"le": bound}) == count
    assert registry.get_sample_value("x_seconds_sum") == pytest.approx(0.0085 + 20)


def test_a_request_that_never_began_has_no_times() -> None:
    registry = CollectorRegistry()
    RequestMetrics(registry).ended(RequestSummary("x", "abort", 5, 0, 0.1))
    assert registry.get_sample_value("octavo_request_queue_time_seconds_count") == 0
    assert registry.get_sample_value("octavo_e2e_request_latency_seconds_count") == 1


@pytest.mark.parametrize(("kind", "counted"), [("RequestTimeoutError", 1), ("QueueFullError", 0)])
def test_o58_what_times_out_before_it_is_taken_is_counted(folder: Path, kind: str, counted: int) -> None:
    with http_frontend(folder) as frontend:
        before = read(frontend.http)
        frontend.scheduler.refuse = lambda s: Rejected(s.request, s.attempt, kind, "because")
        assert frontend.http.post(COMPLETIONS, json={"prompt": "the cat"}).status_code >= 400
        after = read(frontend.http)
    gained = {name: value - before.get(name, 0.0) for name, value in after.items()}
    assert sum(gained[name] for name in gained if "request_success_total" in name) == counted
