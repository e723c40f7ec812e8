"""Text to token ids and back, read from a model folder."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as Backend

from ...protocol.errors import ModelError
from .conversion import converted_folder
from .detokenizer import Detokenizer
from .model_files import read_json, token_ids
from .special_tokens import SpecialTokens, read_special_tokens
from .token_bytes import TokenBytes, byte_decoding


class Tokenizer:
    """A model's tokenizer. It is immutable after loading and may be used by several threads at once.

    Whether bos and eos are put around a text is decided by the post-processor in `tokenizer.json`, as in
    transformers: the flags add_bos_token and add_eos_token only matter to folders that have no such file.

    Attributes:
        vocab_size: how many rows the model's embedding has; ids from the vocabulary's end up to it are
        padding. bos_token_id: the id of the beginning-of-sequence token, if the tokenizer names one.
        eos_token_ids: every id that ends an answer, from config, generation config and tokenizer config.
        special_ids: ids of the special tokens, which `decode` leaves out unless told otherwise. added_ids:
        ids of all tokens that are matched whole, special or not. special_tokens_map: bos_token, eos_token
        and so on, as chat templates see them.
    """

    def __init__(
        self,
        backend: Backend,
        special_tokens: SpecialTokens,
        *,
        vocab_size: int,
        eos_token_ids: tuple[int, ...],
    ) -> None:
        self._backend = backend
        self.vocab_size = vocab_size
        self.eos_token_ids = eos_token_ids
        self.special_tokens_map = dict(special_tokens.named)
        self.bos_token_id = self._named_id("bos_token")
        added = backend.get_added_tokens_decoder()
        self.added_ids = frozenset(added)
        self.special_ids = frozenset(index for index, token in added.items() if token.special)
        self.byte_decoding = byte_decoding(backend)
        self._all_bytes: TokenBytes | None = None
        self._visible_bytes: TokenBytes | None = None
        if self.byte_decoding is not None:
            self._all_bytes = TokenBytes(backend, self.byte_decoding, frozenset())
            self._visible_bytes = TokenBytes(backend, self.byte_decoding, self.special_ids)

    @classmethod
    def load(cls, model_dir: Path) -> "Tokenizer":
        """Read the tokenizer of a model folder.

        A folder without a tokenizer.json is converted once, in a child process, into the user's cache. Raises
        ModelError when the folder holds no tokenizer, or one that cannot be read.
        """
        folder = model_dir if (model_dir / "tokenizer.json").is_file() else converted_folder(model_dir)
        backend = _load_backend(folder / "tokenizer.json")
        tokenizer_config = read_json(folder / "tokenizer_config.json")
        special_tokens = read_special_tokens(folder, tokenizer_config)
        special_tokens.add_to(backend)
        backend.encode_special_tokens = bool(tokenizer_config.get("split_special_tokens", False))
        config = _text_config(read_json(model_dir / "config.json"))
        eos = token_ids(config.get("eos_token_id"))
        eos += token_ids(read_json(model_dir / "generation_config.json").get("eos_token_id"))
        if "eos_token" in special_tokens.named:
            eos += token_ids(backend.token_to_id(special_tokens.named["eos_token"]))
        vocab_size = config.get("vocab_size", backend.get_vocab_size(with_added_tokens=True))
        return cls(backend, special_tokens, vocab_size=vocab_size, eos_token_ids=tuple(dict.fromkeys(eos)))

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """The token ids of `text`; with `add_special_tokens` between the bos and eos the tokenizer adds.

        Other threads run while a long text is encoded.
        """
        return self.encode_batch([text], add_special_tokens=add_special_tokens)[0]

    def encode_batch(self, texts: Sequence[str], *, add_special_tokens: bool = True) -> list[list[int]]:
        """As `encode`, for several texts at once."""
        # Only the batch call lets go of the interpreter lock, and the fast one skips offsets: half the time.
        batch = self._backend.encode_batch_fast(list(texts), add_special_tokens=add_special_tokens)
        return [encoding.ids for encoding in batch]

    def decode(
        self,
        ids: Sequence[int],
        *,
        skip_special_tokens: bool = True,
        spaces_between_special_tokens: bool = True,
    ) -> str:
        """The text of `ids`. Broken UTF-8 becomes U+FFFD; ids beyond the vocabulary contribute nothing.

        Some decoders put a space before every token: without `spaces_between_special_tokens` there is none
        between added tokens that follow each other.
        """
        if skip_special_tokens or spaces_between_special_tokens or self.byte_decoding is not None:
            return self._backend.decode(list(ids), skip_special_tokens=skip_special_tokens)
        detokenizer = Detokenizer.create(
            self, (), skip_special_tokens=False, spaces_between_special_tokens=False
        )
        return detokenizer.push(ids) + detokenizer.flush()

    def id_to_token(self, token_id: int) -> str | None:
        """The token as the vocabulary spells it, None for an id beyond the vocabulary."""
        return self._backend.id_to_token(token_id)

    def token_to_id(self, token: str) -> int | None:
        """The id of a token spelled as in the vocabulary."""
        return self._backend.token_to_id(token)

    def visible_bytes(self, *, skip_special_tokens: bool) -> TokenBytes | None:
        """Token id -> the bytes it contributes to the text; None when text is not made of tokens' bytes."""
        return self._visible_bytes if skip_special_tokens else self._all_bytes

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes that the token contributes inside a text, special tokens included."""
        if self._all_bytes is not None:
            return self._all_bytes[token_id]
        # After a token of its own kind it shows the space that some decoders put between tokens.
        once = self._backend.decode([token_id], skip_special_tokens=False)
        twice = self._backend.decode([token_id, token_id], skip_special_tokens=False)
        return twice[len(once) :].encode("utf-8")

    def token_text(self, token_id: int) -> str:
        """As `token_bytes`, read as text: a token that is a part of a character shows as U+FFFD."""
        return self.token_bytes(token_id).decode("utf-8", errors="replace")

    def _named_id(self, name: str) -> int | None:
        content = self.special_tokens_map.get(name)
        return None if content is None else self._backend.token_to_id(content)


def _load_backend(path: Path) -> Backend:
    try:
        backend = Backend.from_file(str(path))
    except Exception as error:  # tokenizers raises plain Exception, whatever is wrong with the file
        raise ModelError(f"cannot read {path}: {error}") from error
    # Files may ask for both; a prompt is neither cut nor filled up.
    backend.no_truncation()
    backend.no_padding()
    return backend


def _text_config(config: dict[str, Any]) -> dict[str, Any]:
    """The language model's part of config.json, which models of several modalities keep one level deeper."""
    nested = config.get("text_config")
    return {**config, **nested} if isinstance(nested, dict) else config
