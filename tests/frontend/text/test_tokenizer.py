"""Tokenizer: ids and texts as transformers gives them, ends, threads."""

import json
import random
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from octavo.frontend.text import Tokenizer
from octavo.protocol.errors import ModelError
from octavo.tests.support.demo import demo_model
from octavo.tests.support.models import make_script_model, make_tok_b, make_tok_s

TEXTS = [
    "",
    " ",
    "Hello, world!",
    "  two spaces\n\n\tand a tab ",
    "don't I'LL 3.14159 2,000 x_y",
    "Größe, naïve, 你好, こんにちは, العربية, 😀👩‍👩‍👧",
    "<|im_start|>user\nhi<|im_end|>\n",
    "a<|endoftext|>b <s>c</s>",
    "e\u0301 \u00e9 \ufb01 \u2028 \ufffd \u0000",
]


def edit_config(folder: Path, name: str = "tokenizer_config.json", **values: Any) -> None:
    path = folder / name
    content = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    path.write_text(json.dumps({**content, **values}), encoding="utf-8")


@pytest.mark.parametrize("add_special_tokens", [True, False])
def test_ids_and_texts_equal_transformers_on_the_demo_model(add_special_tokens: bool) -> None:
    ours, theirs = Tokenizer.load(demo_model()), AutoTokenizer.from_pretrained(demo_model())
    for text in TEXTS:
        ids = ours.encode(text, add_special_tokens=add_special_tokens)
        assert ids == theirs(text, add_special_tokens=add_special_tokens).input_ids
        for skip in (True, False):
            assert ours.decode(ids, skip_special_tokens=skip) == theirs.decode(ids, skip_special_tokens=skip)
    assert ours.encode_batch(TEXTS) == [ours.encode(text) for text in TEXTS]


@pytest.mark.parametrize("make", [make_tok_b, make_tok_s])
@pytest.mark.parametrize("flag", [None, True, False])
@pytest.mark.parametrize("add_bos", [True, False])
def test_bos_is_added_where_transformers_adds_it(
    tmp_path: Path, make: Any, flag: bool, add_bos: bool
) -> None:
    make(tmp_path, add_bos=add_bos)
    edit_config(tmp_path, add_bos_token=flag)
    ours, theirs = Tokenizer.load(tmp_path), AutoTokenizer.from_pretrained(tmp_path)
    for text in TEXTS:
        assert ours.encode(text) == theirs(text).input_ids
    assert (ours.encode("hi")[0] == ours.bos_token_id) is add_bos


def test_added_tokens_of_the_config_join_the_vocabulary(tmp_path: Path) -> None:
    size = make_tok_b(tmp_path).get_vocab_size()
    edit_config(
        tmp_path,
        added_tokens_decoder={
            "0": {"content": "<|endoftext|>", "special": True, "normalized": False},
            str(size): {"content": "<think>", "special": False, "normalized": False},
        },
        additional_special_tokens=["<tool>", "<|im_start|>"],
        eot_token="<eot>",
    )
    ours, theirs = Tokenizer.load(tmp_path), AutoTokenizer.from_pretrained(tmp_path)
    text = "a<think>b<tool>c<eot>d"
    assert ours.encode(text) == theirs(text).input_ids
    assert ours.decode(ours.encode(text)) == theirs.decode(theirs(text).input_ids, skip_special_tokens=True)
    assert ours.token_to_id("<think>") == size
    assert ours.token_to_id("<tool>") in ours.special_ids
    assert ours.token_to_id("<think>") not in ours.special_ids
    assert ours.special_tokens_map == theirs.special_tokens_map


def test_the_older_files_name_special_tokens(tmp_path: Path) -> None:
    make_tok_b(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text("{}")
    (tmp_path / "special_tokens_map.json").write_text(
        json.dumps({"bos_token": "<|endoftext|>", "eos_token": {"content": "<|im_end|>", "lstrip": False}})
    )
    tokenizer = Tokenizer.load(tmp_path)
    assert (tokenizer.bos_token_id, tokenizer.eos_token_ids) == (0, (2,))


def test_ends_are_the_union_of_all_files(tmp_path: Path) -> None:
    make_script_model(tmp_path, "ab")
    edit_config(tmp_path, "config.json", eos_token_id=7, vocab_size=300)
    edit_config(tmp_path, "generation_config.json", eos_token_id=[0, 7, 9])
    tokenizer = Tokenizer.load(tmp_path)
    assert tokenizer.eos_token_ids == (7, 0, 9, 2)
    assert tokenizer.vocab_size == 300


def test_ids_beyond_the_vocabulary_have_no_text(tmp_path: Path) -> None:
    make_script_model(tmp_path, "ab")
    tokenizer = Tokenizer.load(tmp_path)
    assert tokenizer.id_to_token(999) is None
    assert tokenizer.decode([*tokenizer.encode("ab"), 999]) == "ab"
    assert tokenizer.token_bytes(999) == b""


def test_truncation_and_padding_of_the_file_are_off(tmp_path: Path) -> None:
    backend = make_tok_b(tmp_path)
    backend.enable_truncation(4)
    backend.enable_padding(length=8)
    backend.save(str(tmp_path / "tokenizer.json"))
    tokenizer = Tokenizer.load(tmp_path)
    assert [len(ids) for ids in tokenizer.encode_batch(["z", "z" * 20])] == [1, 20]


def test_token_texts(tmp_path: Path) -> None:
    make_tok_b(tmp_path / "b")
    make_tok_s(tmp_path / "s")
    tok_b, tok_s = Tokenizer.load(tmp_path / "b"), Tokenizer.load(tmp_path / "s")
    assert [tok_b.token_text(token) for token in tok_b.encode("the dog")][-1] == " dog"
    assert b"".join(map(tok_b.token_bytes, tok_b.encode("😀"))) == "😀".encode()
    assert tok_b.token_text(tok_b.encode("😀")[0]) == "\N{REPLACEMENT CHARACTER}"
    assert tok_b.token_text(2) == "<|im_end|>"
    assert [tok_s.token_text(token) for token in tok_s.encode("the cat")] == [" the", " cat"]
    assert b"".join(map(tok_s.token_bytes, tok_s.encode("é"))) == b" \xc3\xa9"


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "holds no tokenizer"), ("{", "cannot read"), ('{"model": 1}', "cannot read")],
)
def test_a_folder_without_a_readable_tokenizer_is_refused(tmp_path: Path, content: str, message: str) -> None:
    if content is not None:
        (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(ModelError, match=message):
        Tokenizer.load(tmp_path)


def test_o61_other_threads_run_while_a_long_prompt_is_encoded() -> None:
    tokenizer = Tokenizer.load(demo_model())
    words = random.Random(0)
    text = " ".join(words.choice(["the", "hello", "Paris", "x1y2", "😀", "über"]) for _ in range(200_000))
    encoded = threading.Event()

    def encode() -> None:
        tokenizer.encode(text)
        encoded.set()

    thread = threading.Thread(target=encode)
    gaps, last = [], time.perf_counter()
    thread.start()
    while not encoded.wait(0.001):
        now = time.perf_counter()
        gaps.append(now - last)
        last = now
    thread.join()
    assert len(gaps) > 20
    assert max(gaps) < 0.25


def test_threads_may_share_a_tokenizer() -> None:
    tokenizer = Tokenizer.load(demo_model())
    texts = [f"{text} {number}" for number in range(40) for text in TEXTS]
    expected = tokenizer.encode_batch(texts)
    found: list[list[list[int]]] = []
    threads = [
        threading.Thread(target=lambda: found.append([tokenizer.encode(text) for text in texts]))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [expected] * 4
