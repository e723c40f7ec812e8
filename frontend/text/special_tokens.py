"""Special and added tokens, as the files beside `tokenizer.json` declare them."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import AddedToken
from tokenizers import Tokenizer as Backend

from .model_files import read_json

_NAMES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


@dataclass(frozen=True)
class SpecialTokens:
    """`named`: bos_token, eos_token and so on, as chat templates see them; `extra`: special, without a name;
    `added`: tokens with their ids, special or not."""

    named: dict[str, str]
    extra: tuple[str, ...]
    added: tuple[tuple[int, AddedToken], ...]

    def add_to(self, backend: Backend) -> None:
        """Make `backend` match all of them whole; named and extra ones as special tokens."""
        known = backend.get_added_tokens_decoder()
        missing = [token for index, token in self.added if not _same(known.get(index), token)]
        if missing:
            backend.add_tokens(missing)
        special = {token.content for token in backend.get_added_tokens_decoder().values() if token.special}
        declared = dict.fromkeys([*self.named.values(), *self.extra])
        lacking = [AddedToken(content, normalized=False) for content in declared if content not in special]
        if lacking:
            backend.add_special_tokens(lacking)


def read_special_tokens(model_dir: Path, tokenizer_config: Mapping[str, Any]) -> SpecialTokens:
    """Read them from tokenizer_config.json and, where that one lists no added tokens, from the older files.

    The older files are special_tokens_map.json and added_tokens.json.
    """
    config = dict(tokenizer_config)
    listed = config.get("added_tokens_decoder")
    if listed is None:
        config.update(read_json(model_dir / "special_tokens_map.json"))
    named, extra = _split_names(config)
    if listed is not None:
        added = [(int(index), _added_token(token)) for index, token in listed.items()]
    else:
        special = {*named.values(), *extra}
        added = [
            (index, AddedToken(content, normalized=content not in special, special=content in special))
            for content, index in read_json(model_dir / "added_tokens.json").items()
        ]
    return SpecialTokens(named, tuple(extra), tuple(sorted(added, key=lambda entry: entry[0])))


def _split_names(config: Mapping[str, Any]) -> tuple[dict[str, str], list[str]]:
    """Tokens with a name of their own, and the list of those without."""
    named = {name: _content(config[name]) for name in _NAMES if config.get(name) is not None}
    for key, value in config.items():
        if key.endswith("_token") and key not in named and isinstance(value, str | dict):
            named[key] = _content(value)
    extra = config.get("extra_special_tokens") or config.get("additional_special_tokens") or []
    if isinstance(extra, dict):
        named.update({name: _content(value) for name, value in extra.items()})
        return named, []
    return named, [_content(value) for value in extra]


def _content(token: Any) -> str:
    return str(token["content"]) if isinstance(token, dict) else str(token)


def _added_token(fields: Mapping[str, Any]) -> AddedToken:
    options = ("single_word", "lstrip", "rstrip", "normalized", "special")
    return AddedToken(fields["content"], **{name: fields[name] for name in options if name in fields})


def _same(known: AddedToken | None, token: AddedToken) -> bool:
    return known is not None and repr(known) == repr(token)
