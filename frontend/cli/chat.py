"""Chat with a model in the terminal, on a running server or on one that is started for it."""

import argparse
import contextlib
import shlex
import signal
import sys
from collections.abc import Iterator

from ...protocol.errors import OctavoError, UsageError
from .chat_client import ChatClient, ChatMessage

_KEPT = """
The server goes on. Talk to it:
  octavo chat --url {url}
  curl {url}/v1/chat/completions -H 'content-type: application/json' \\
    -d '{{"messages": [{{"role": "user", "content": "Hello!"}}]}}'
End it: kill {pid}     Its log: {log}
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add where to talk, and how."""
    parser.add_argument("model", nargs="?", default="demo", metavar="MODEL", help="to serve (default: demo)")
    parser.add_argument("--url", default="", help="of a running server; none is started then")
    parser.add_argument("--api-key", default="", metavar="KEY", help="that the server asks for")
    parser.add_argument("--system", default="", metavar="TEXT", help="what the model is to be")
    parser.add_argument("--message", default="", metavar="TEXT", help="ask this, print the answer and end")
    parser.add_argument("--temperature", type=float, metavar="X", help="0 for the likeliest answer")
    parser.add_argument("--max-tokens", type=int, metavar="N", help="most tokens of an answer")
    parser.add_argument("--keep", action="store_true", help="leave the started server running")
    parser.add_argument(
        "--serve-flags",
        default="",
        metavar="TEXT",
        help='for octavo serve, as in --serve-flags="--dtype float32"',
    )


def run(arguments: argparse.Namespace) -> int:
    """Chat until end-of-file."""
    if arguments.url and (arguments.keep or arguments.serve_flags):
        raise UsageError(
            "with --url no server is started: --keep and --serve-flags do not apply", param="url"
        )
    # So that an end from outside leaves nothing behind either.
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    with contextlib.ExitStack() as stack:
        url, after = arguments.url, ""
        if not url:
            from .local_server import LocalServer

            sys.stderr.write(f"starting {arguments.model} ...\n")
            server = LocalServer(arguments.model, shlex.split(arguments.serve_flags), keep=arguments.keep)
            url = server.info.url
            if arguments.keep:
                after = _KEPT.format(url=url, pid=server.info.pid, log=server.log_path)
            else:
                stack.callback(server.close)
        _Conversation(ChatClient(url, arguments.api_key), arguments).run()
        sys.stdout.write(after)
    return 0


class _Conversation:
    """Turns of a user and a model."""

    def __init__(self, client: ChatClient, arguments: argparse.Namespace) -> None:
        self._client = client
        self._question = arguments.message
        self._options = {"temperature": arguments.temperature, "max_tokens": arguments.max_tokens}
        self._messages: list[ChatMessage] = []
        if arguments.system:
            self._messages.append({"role": "system", "content": arguments.system})

    def run(self) -> None:
        """One question when it was given, else one a line until end-of-file."""
        if self._question:
            self._ask(self._question)
            return
        for line in _lines():
            try:
                self._ask(line)
            except OctavoError as error:
                sys.stderr.write(f"{error.message}\n")

    def _ask(self, question: str) -> None:
        """Print the answer as it comes; Ctrl-C ends the answer, not the conversation."""
        self._messages.append({"role": "user", "content": question})
        answer = ""
        try:
            with contextlib.closing(self._client.answer(self._messages, **self._options)) as pieces:
                for piece in pieces:
                    answer += piece
                    sys.stdout.write(piece)
                    sys.stdout.flush()
        except KeyboardInterrupt:
            sys.stdout.write(" ...")
        except OctavoError:
            self._messages.pop()
            raise
        sys.stdout.write("\n")
        self._messages.append({"role": "assistant", "content": answer})


def _lines() -> Iterator[str]:
    """What the user types; a terminal gets a prompt and line editing."""
    if not sys.stdin.isatty():
        yield from filter(None, map(str.strip, sys.stdin))
        return
    import readline  # noqa: F401  editing and history for input()

    sys.stdout.write("Ctrl-C ends an answer, Ctrl-D the chat.\n")
    while True:
        try:
            line = input("> ").strip()
        except EOFError:
            sys.stdout.write("\n")
            return
        except KeyboardInterrupt:
            sys.stdout.write("\n")
            continue
        if line:
            yield line
