"""The client that only counts, against a frontend."""

import asyncio
from pathlib import Path

from octavo.frontend.bench.frames import read_streams
from octavo.tests.support.http_frontend import http_frontend
from octavo.tests.support.tokens import make_tok_b


def test_frames_of_many_streams_are_counted(tmp_path: Path) -> None:
    make_tok_b(tmp_path)
    with http_frontend(tmp_path) as frontend:
        frontend.scheduler.step_seconds = 0.02
        body: dict[str, object] = {"prompt": "x", "max_tokens": 5, "ignore_eos": True}
        counts = asyncio.run(read_streams(frontend.url, "/v1/completions", body, 3))
        assert counts.ended == 3
        assert 3 <= counts.frames <= 15  # tokens of a stream may be joined
        assert counts.bytes > 0
        assert counts.last > counts.began
