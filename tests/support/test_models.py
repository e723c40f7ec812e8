"""The small models say what they promise, as transformers runs them."""

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from octavo.tests.support.models import make_ctx_model, make_script_model, make_tok_b, make_tok_s


def greedy(path: Path, prompt: list[int], max_tokens: int, **options: float) -> list[int]:
    model = AutoModelForCausalLM.from_pretrained(path, dtype="auto")
    output = model.generate(
        torch.tensor([prompt]), do_sample=False, max_new_tokens=max_tokens, pad_token_id=0, **options
    )
    return output[0][len(prompt) :].tolist()


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_script_model_says_its_script_then_eos(tmp_path: Path, dtype: str) -> None:
    model = make_script_model(tmp_path, "Q😀語z.", dtype=dtype)
    output = greedy(tmp_path, [model.token_id("x")], 20)
    assert output == [*model.script_ids, model.eos_token_id]
    assert model.tokenizer.decode(output) == "Q😀語z."


def test_loop_never_ends(tmp_path: Path) -> None:
    model = make_script_model(tmp_path, "abc", loop=True)
    assert greedy(tmp_path, [model.token_id("x")], 8) == [model.token_id(letter) for letter in "abcabcab"]


def test_a_token_with_two_successors_follows_the_penalty(tmp_path: Path) -> None:
    model = make_script_model(tmp_path, "q", successors={"P": {"A": 2.0, "B": 1.9}})
    prompt = [model.token_id(letter) for letter in "xAyP"]
    assert greedy(tmp_path, prompt, 1) == [model.token_id("A")]
    assert greedy(tmp_path, prompt, 1, repetition_penalty=1.5) == [model.token_id("B")]


def test_script_of_a_repeated_token_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="distinct"):
        make_script_model(tmp_path, "abca")


def test_ctx_model_depends_on_its_whole_context(tmp_path: Path) -> None:
    make_ctx_model(tmp_path, num_shards=2)
    prompt = [3 + (7 * position) % 280 for position in range(48)]
    output = greedy(tmp_path, prompt, 64)
    changed = greedy(tmp_path, [prompt[0] + 1, *prompt[1:]], 64)
    assert len(set(output)) > 40
    assert sum(a != b for a, b in zip(output, changed, strict=True)) > 55


def test_pieces_of_the_tokenizers(tmp_path: Path) -> None:
    tok_b, tok_s = make_tok_b(tmp_path / "b"), make_tok_s(tmp_path / "s")
    assert [len(tok_b.encode(text).ids) for text in ("😀", "語", "é", "dog", " dog")] == [4, 3, 2, 2, 1]
    words = tok_s.encode("the cat sat").ids
    assert tok_s.decode(words) == "the cat sat"
    assert [tok_s.decode([word]) for word in words] == ["the", "cat", "sat"]
