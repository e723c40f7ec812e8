"""Reading `.gguf` model files: metadata, tokenizer and weights become a normal model folder.

`convert_gguf` is the door, and `gguf_folder` keeps what it made in the user's cache. The folder it writes is
what every other part of Octavo (and transformers) reads, so nothing else knows that the file format exists.
Architectures and tokenizers that are not known here are refused by name; nothing is guessed. It does not know
where files come from.
"""

from .convert import convert_gguf, gguf_folder
from .file import UnsupportedGgufError

__all__ = ["UnsupportedGgufError", "convert_gguf", "gguf_folder"]
