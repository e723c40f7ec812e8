"""One frontend for all tests of this folder, with what it was told taken back after each."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from octavo.tests.support.http_frontend import HttpFrontend, http_frontend
from octavo.tests.support.tokens import make_tok_b


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder with a byte-level tokenizer and a chat template."""
    path = tmp_path_factory.mktemp("tok-b")
    make_tok_b(path)
    return path


@pytest.fixture(scope="session")
def shared(folder: Path) -> Iterator[HttpFrontend]:
    with http_frontend(folder) as frontend:
        yield frontend


@pytest.fixture
def frontend(shared: HttpFrontend) -> HttpFrontend:
    shared.reset()
    return shared
