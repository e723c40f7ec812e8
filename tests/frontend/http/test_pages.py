"""The OpenAPI document and the pages, whole in themselves."""

import re
from pathlib import Path

import pytest

import octavo
from octavo.tests.support.http_frontend import HttpFrontend


def test_the_document_describes_every_operation(frontend: HttpFrontend) -> None:
    document = frontend.http.get("/openapi.json").json()
    assert document["openapi"].startswith("3.1")
    for path in ("/v1/completions", "/v1/chat/completions", "/generate", "/tokenize", "/detokenize"):
        schema = document["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]
        name = schema["$ref"].rpartition("/")[2]
        assert document["components"]["schemas"][name]["properties"]["model"]
    identifiers = [
        operation["operationId"] for methods in document["paths"].values() for operation in methods.values()
    ]
    assert len(identifiers) == len(set(identifiers))


def test_every_reference_in_the_document_leads_somewhere(frontend: HttpFrontend) -> None:
    answer = frontend.http.get("/openapi.json")
    schemas = answer.json()["components"]["schemas"]
    references = set(re.findall(r'"#/components/schemas/([^"]+)"', answer.text))
    assert references == references & set(schemas)
    assert "ErrorBody" in references


def test_every_described_get_answers_as_described(frontend: HttpFrontend) -> None:
    document = frontend.http.get("/openapi.json").json()
    for path, methods in document["paths"].items():
        if "get" in methods:
            answer = frontend.http.get(re.sub(r"{\w+}", "nothing-like-it", path))
            assert str(answer.status_code) in methods["get"]["responses"], path


def test_the_documentation_lists_every_path(frontend: HttpFrontend) -> None:
    text = (Path(octavo.__file__).parent / "docs" / "http.md").read_text()
    for path in frontend.http.get("/openapi.json").json()["paths"]:
        assert path.split("/{")[0] in text


@pytest.mark.parametrize("path", ["/", "/docs"])
def test_pages_need_nothing_from_elsewhere(frontend: HttpFrontend, path: str) -> None:
    answer = frontend.http.get(path)
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/html")
    assert not re.findall(r"(?:src|href)\s*=\s*[\"'](?:https?:)?//", answer.text)


def test_links_of_the_front_page_lead_somewhere(frontend: HttpFrontend) -> None:
    links = re.findall(r'<a href="([^"]+)"', frontend.http.get("/").text)
    assert links
    for link in links:
        assert frontend.http.get(f"/{link}").status_code == 200


def test_version(frontend: HttpFrontend) -> None:
    assert frontend.http.get("/version").json() == {"version": octavo.__version__}
