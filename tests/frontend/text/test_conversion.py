"""Folders without a tokenizer.json are converted once."""

import json
from pathlib import Path

import pytest

from octavo.frontend.text import Tokenizer
from octavo.frontend.text.conversion import converted_folder
from octavo.protocol.errors import ModelError
from octavo.tests.support.models import make_tok_b


@pytest.fixture
def old_folder(tmp_path: Path) -> Path:
    """TOK-B as a vocabulary and a list of merges."""
    folder = tmp_path / "model"
    make_tok_b(folder)
    model = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))["model"]
    (folder / "tokenizer.json").unlink()
    (folder / "vocab.json").write_text(json.dumps(model["vocab"]), encoding="utf-8")
    merges = "\n".join(" ".join(pair) for pair in model["merges"])
    (folder / "merges.txt").write_text("#version: 0.2\n" + merges + "\n", encoding="utf-8")
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "tokenizer_class": "GPT2Tokenizer"}))
    return folder


def test_a_vocabulary_and_merges_are_converted_once(
    old_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    tokenizer = Tokenizer.load(old_folder)
    text = "the cat 😀 ran"
    assert tokenizer.encode(text) == make_tok_b(tmp_path / "new").encode(text).ids
    assert tokenizer.eos_token_ids == (2,)
    monkeypatch.setattr("sys.executable", "/nowhere")  # a second conversion would fail
    assert Tokenizer.load(old_folder).encode(text) == tokenizer.encode(text)
    (old_folder / "merges.txt").write_text("#version: 0.2\n")
    with pytest.raises(OSError, match="nowhere"):
        Tokenizer.load(old_folder)


def test_files_that_cannot_be_converted_are_named_with_the_reason(old_folder: Path, tmp_path: Path) -> None:
    (old_folder / "vocab.json").write_text("broken")
    with pytest.raises(ModelError, match=r"could not be converted: .*Error"):
        converted_folder(old_folder, tmp_path / "cache")
    assert list((tmp_path / "cache" / "tokenizers").glob("[!.]*")) == []
