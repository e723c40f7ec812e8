"""The server keeps to its own OpenAPI document, whatever it is sent: three thousand calls."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable

from octavo.tests.support.http_frontend import HttpFrontend, http_frontend
from octavo.tests.support.templates import HERMES
from octavo.tests.support.tokens import make_tok_b

pytestmark = [
    pytest.mark.full,
    pytest.mark.timeout(1200),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
CALLS = 3000


@pytest.fixture(scope="module")
def answering(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpFrontend]:
    folder = tmp_path_factory.mktemp("answering")
    make_tok_b(folder, chat_template=HERMES)
    with http_frontend(folder) as frontend:
        yield frontend


@pytest.fixture(scope="module")
def schema(answering: HttpFrontend) -> Any:
    import schemathesis

    return schemathesis.openapi.from_url(f"{answering.url}/openapi.json")


def test_no_answer_is_undocumented(schema: Any) -> None:
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi.checks import (
        content_type_conformance,
        response_schema_conformance,
        status_code_conformance,
    )

    checks = [
        not_a_server_error,
        status_code_conformance,
        content_type_conformance,
        response_schema_conformance,
    ]
    operations = [result.ok() for result in schema.get_all_operations()]
    bodies = sum(bool(operation.body) for operation in operations)
    statuses: Counter[int] = Counter()
    for operation in operations:
        # Half of the calls are as the document says, half are not.
        for mode in ("positive", "negative"):
            statuses += call_many(operation, mode, CALLS // (2 * bodies) if operation.body else 20, checks)
    assert statuses.total() >= CALLS
    assert statuses[200] and statuses[400]


def call_many(operation: Any, mode: str, count: int, checks: list[Any]) -> Counter[int]:
    """Call an operation so many times with bodies and parameters of a kind; returns the statuses."""
    from schemathesis import GenerationMode

    statuses: Counter[int] = Counter()

    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(data=st.data())
    def call(data: st.DataObject) -> None:
        case = data.draw(operation.as_strategy(generation_mode=GenerationMode(mode)))
        statuses[case.call_and_validate(checks=checks).status_code] += 1

    try:
        call()
    except Unsatisfiable:
        assert mode == "negative"  # nothing about it can be wrong
    return statuses
