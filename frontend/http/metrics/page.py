"""The page at /metrics: the files of all processes merged, under the prefix that was asked for."""

import re
from pathlib import Path

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_OWN_PREFIX = "octavo_"
_NAME = re.compile(rb"^((?:# (?:HELP|TYPE) )?)octavo_", re.MULTILINE)


def metrics_page(registry: CollectorRegistry, folder: Path | None, prefix: str) -> bytes:
    """All metrics as text. `folder` holds the files of all processes; without one, `registry`'s alone.

    Reads files: run it off the loop.
    """
    if folder is not None:
        registry = CollectorRegistry()
        MultiProcessCollector(registry, str(folder))  # type: ignore[no-untyped-call]
    page = generate_latest(registry)
    return page if prefix == _OWN_PREFIX else _NAME.sub(rb"\g<1>" + prefix.encode(), page)
