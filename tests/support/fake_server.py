"""A supervisor over fake processes: `python -m octavo.tests.support.fake_server RUN_DIR PROCESSES TIMEOUT`.

PROCESSES is a JSON object of role to the fields of its `FakeChild`.
"""

import json
import logging
import os
import sys
from pathlib import Path

import msgspec

from octavo.frontend.supervisor.children import ChildSpec
from octavo.frontend.supervisor.ports import bind_port
from octavo.frontend.supervisor.run_dir import use_run_dir
from octavo.frontend.supervisor.supervisor import ServerParts, Supervisor
from octavo.protocol.errors import StartupError
from octavo.protocol.lifeline import Lifeline
from octavo.tests.support.fake_child import FakeChild


def main(run_dir_path: str, processes: str, shutdown_timeout: str) -> int:
    logging.basicConfig(level="INFO", stream=sys.stderr)
    listener = bind_port("127.0.0.1", 0)
    run_dir = use_run_dir(Path(run_dir_path))
    lifeline = Lifeline()
    specs = []
    for role, fields in json.loads(processes).items():
        serves = {"listen_fd": listener.fileno()} if role.startswith("frontend") else {}
        child = FakeChild(lifeline_fd=lifeline.read_fd, parent_pid=os.getpid(), **serves, **fields)
        path = run_dir.path / f"{role}.json"
        path.write_bytes(msgspec.json.encode(child))
        fds = (lifeline.read_fd, *serves.values())
        specs.append(ChildSpec("tests.support.fake_child", path, fds, run_dir.metrics))
    parts = ServerParts(
        model="fake",
        endpoint=run_dir.endpoint("clients"),
        control=run_dir.endpoint("workers"),
        engine=tuple(spec for spec in specs if not spec.role.startswith("frontend")),
        frontends=tuple(spec for spec in specs if spec.role.startswith("frontend")),
        shutdown_timeout=float(shutdown_timeout),
    )
    try:
        return Supervisor(parts, run_dir, listener, lambda url: print(url, flush=True)).run()
    except StartupError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_status
    finally:
        run_dir.close()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
