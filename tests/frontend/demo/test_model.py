"""The demo model is there, complete, and from the very package that was tested."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from octavo.frontend.demo import DEMO_MODEL_NAME, DemoModelError, ensure_demo_model, wheel
from octavo.frontend.text import ChatTemplates, Tokenizer
from octavo.tests.support.demo import demo_model

FILES = {
    "chat_template.jinja",
    "config.json",
    "generation_config.json",
    "model.safetensors",
    "tokenizer.json",
    "tokenizer_config.json",
}


def fake_pip(folder: Path, program: str) -> str:
    """An interpreter that runs `program` in the place of pip, with `target` set."""
    path = folder / "python"
    path.write_text(
        f"#!{sys.executable}\nimport sys\ntarget = sys.argv[sys.argv.index('--dest') + 1]\n{program}\n"
    )
    path.chmod(0o755)
    return str(path)


def test_the_folder_is_complete_and_found_again() -> None:
    folder = demo_model()
    assert folder.name == DEMO_MODEL_NAME
    assert {path.name for path in folder.iterdir()} == FILES
    assert ensure_demo_model() == folder
    config = json.loads((folder / "config.json").read_text())
    assert (config["model_type"], config["num_hidden_layers"], config["vocab_size"]) == ("llama", 30, 49152)


def test_its_chat_template_greets_as_the_model_was_trained() -> None:
    tokenizer = Tokenizer.load(demo_model())
    prompt = ChatTemplates.load(demo_model(), tokenizer).render([{"role": "user", "content": "Hi"}])
    assert prompt.startswith("<|im_start|>system\nYou are a helpful AI assistant named SmolLM")
    assert prompt.endswith("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")
    assert tokenizer.eos_token_ids == (tokenizer.token_to_id("<|im_end|>"),)


def test_a_failing_pip_is_reported_with_its_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", fake_pip(tmp_path, "sys.exit('no matching distribution')"))
    cache = tmp_path / "cache"
    with pytest.raises(DemoModelError, match="no matching distribution"):
        ensure_demo_model(cache, progress=False)
    assert not list(cache.rglob("*.safetensors"))


def test_another_wheel_than_the_tested_one_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = f"open(target + '/{wheel.WHEEL_NAME}', 'w').write('something else')"
    monkeypatch.setattr(sys, "executable", fake_pip(tmp_path, program))
    with pytest.raises(DemoModelError, match="SHA-256"):
        ensure_demo_model(tmp_path / "cache", progress=False)


def test_an_interrupted_fetch_ends_pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = "open(target + '/started', 'w').close(); import time; time.sleep(60)"
    monkeypatch.setattr(sys, "executable", fake_pip(tmp_path, program))
    children: list[subprocess.Popen[bytes]] = []

    def interrupt(folder: Path) -> int:
        if (folder / "started").exists():
            raise KeyboardInterrupt
        return 0

    start = subprocess.Popen

    def remember(*arguments: object, **options: object) -> "subprocess.Popen[bytes]":
        children.append(start(*arguments, **options))  # type: ignore[call-overload]
        return children[0]

    monkeypatch.setattr(subprocess, "Popen", remember)
    monkeypatch.setattr(wheel, "_size_of", interrupt)
    with pytest.raises(KeyboardInterrupt):
        wheel.fetch_wheel(tmp_path, progress=False)
    assert children[0].returncode is not None
