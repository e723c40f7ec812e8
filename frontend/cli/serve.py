"""Serve a model over HTTP, with an API that OpenAI's clients understand."""

import argparse
import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ...protocol.errors import UsageError
from .engine_flags import add_engine_flags, engine_args

if TYPE_CHECKING:
    from ..supervisor.serve import ServeArgs, Started

# FrontendConfig's fields that are flags here under the same name.
_HTTP = (
    "allowed_origins",
    "ignore_unknown_fields",
    "trust_request_chat_template",
    "protect_metrics",
    "metrics_prefix",
    "access_log",
    "tool_call_parser",
    "reasoning_parser",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the model and all flags."""
    parser.add_argument("model", metavar="MODEL", help="a local folder, a hub name, or demo")
    server = parser.add_argument_group("server")
    server.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    server.add_argument(
        "--port", type=int, default=8000, metavar="N", help="0 for a free one (default: %(default)s)"
    )
    server.add_argument(
        "--served-model-name", nargs="+", default=(), metavar="NAME", help="names that requests may ask for"
    )
    server.add_argument(
        "--api-key", nargs="+", default=(), metavar="KEY", help="ask every request for one of these keys"
    )
    server.add_argument(
        "--api-server-count", type=int, default=0, metavar="N", help="frontends (default: by cores)"
    )
    server.add_argument(
        "--shutdown-timeout",
        type=float,
        default=30.0,
        metavar="X",
        help="seconds that running requests get after SIGTERM (default: 30)",
    )
    server.add_argument(
        "--run-dir", type=Path, metavar="DIR", help="for sockets and process files (default: a new one)"
    )
    server.add_argument(
        "--zmq-endpoint",
        nargs="+",
        default=(),
        metavar="URL",
        help="listen here too for clients of the scheduler, such as tcp://127.0.0.1:5555; loopback only",
    )
    # For a parent that must not be outlived: the server ends when this inherited pipe does.
    server.add_argument("--lifeline-fd", type=int, default=-1, help=argparse.SUPPRESS)
    _add_http_flags(parser.add_argument_group("HTTP"))
    add_engine_flags(parser, log_level="INFO")


def _add_http_flags(group: "argparse._ArgumentGroup") -> None:
    group.add_argument(
        "--allowed-origins", nargs="+", default=(), metavar="URL", help="origins for CORS, * for all"
    )
    group.add_argument(
        "--ignore-unknown-fields", action="store_true", help="accept request fields that no API knows"
    )
    group.add_argument(
        "--trust-request-chat-template", action="store_true", help="render templates that requests bring"
    )
    group.add_argument(
        "--tool-call-parser",
        default="auto",
        metavar="NAME",
        help="how the model calls tools: hermes, llama3_json, mistral, pythonic, none (default: auto, by its "
        "chat template)",
    )
    group.add_argument(
        "--reasoning-parser",
        default="auto",
        metavar="NAME",
        help="how the model writes reasoning: think, mistral, none (default: auto, by its chat template)",
    )
    group.add_argument("--protect-metrics", action="store_true", help="ask for a key at /metrics too")
    group.add_argument("--metrics-prefix", default="octavo_", metavar="TEXT", help="of names at /metrics")
    group.add_argument("--access-log", action="store_true", help="log a line for each request")


def run(arguments: argparse.Namespace) -> int:
    """Serve until told to end."""
    engine = engine_args(arguments, **_first_name(arguments))
    args = _serve_args(arguments)
    logging.basicConfig(
        level=engine.log_level, format="%(asctime)s %(levelname)s supervisor %(message)s", stream=sys.stderr
    )
    from ..supervisor.serve import serve

    return serve(engine, args, _announce)


def _first_name(arguments: argparse.Namespace) -> dict[str, object]:
    names = arguments.served_model_name
    return {"served_model_name": names[0] if names else None}


def _serve_args(arguments: argparse.Namespace) -> "ServeArgs":
    from ..supervisor.serve import ServeArgs

    _check_range("port", arguments.port, 0, 65535)
    _check_range("api_server_count", arguments.api_server_count, 0, 256)
    _check_range("shutdown_timeout", arguments.shutdown_timeout, 0, 1e6)
    for endpoint in arguments.zmq_endpoint:
        _check_endpoint(endpoint)
    http = {name: getattr(arguments, name) for name in _HTTP}
    return ServeArgs(
        host=arguments.host,
        port=arguments.port,
        num_frontends=arguments.api_server_count,
        shutdown_timeout=arguments.shutdown_timeout,
        run_dir=arguments.run_dir,
        lifeline_fd=arguments.lifeline_fd,
        served_names=tuple(arguments.served_model_name),
        zmq_endpoints=tuple(arguments.zmq_endpoint),
        http={
            **http,
            "allowed_origins": tuple(arguments.allowed_origins),
            "api_keys": tuple(arguments.api_key),
        },
    )


def _check_range(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        flag = f"--{name.replace('_', '-')}"
        raise UsageError(f"{flag} must be in [{low:g}, {high:g}], got {value:g}", param=name)


def _check_endpoint(endpoint: str) -> None:
    """Anyone who reaches the socket can submit: beyond this machine it would need keys."""
    loopback = ("tcp://127.", "tcp://localhost:", "tcp://[::1]:", "ipc://")
    if not endpoint.startswith(loopback):
        raise UsageError(
            f"--zmq-endpoint must be ipc or a tcp address of loopback, got {endpoint!r}", param="zmq_endpoint"
        )


def _announce(started: "Started") -> None:
    phases = ", ".join(f"{name} {seconds:.2f}" for name, seconds in started.phases)
    total = sum(seconds for _, seconds in started.phases)
    sys.stdout.write(
        f"Octavo serves {started.model} at {started.url} after {total:.2f} s ({phases}); "
        f"run directory {started.run_dir}\n"
    )
    sys.stdout.flush()
