"""Text in, token ids out, and back: tokenizer, chat templates, incremental detokenizer, stop strings.

Everything is read from a model folder's files with `tokenizers` and jinja2; neither torch nor transformers
is imported. A folder that has no `tokenizer.json` is converted once, in a child process that may import
both. This package does not know HTTP, requests in flight, or processes.
"""

from .chat import ChatTemplates
from .detokenizer import Detokenizer
from .stop import StopChecker, StopStrings
from .stream import TextStream
from .tokenizer import Tokenizer

__all__ = ["ChatTemplates", "Detokenizer", "StopChecker", "StopStrings", "TextStream", "Tokenizer"]
