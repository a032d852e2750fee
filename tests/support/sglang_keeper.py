"""The process that keeps the SGLang server of a test run: of the run's workers nobody knows which is the last.

    python -m tests.support.sglang_keeper FOLDER

It starts the server, says so on a line, and stops it when nobody holds the lock of its users any more.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
from pathlib import Path

from tests.support.sglang_server import STATE, USERS, SglangNotRunning, running_server


def main(folder: Path) -> None:
    with (folder / USERS).open("w") as users:
        try:
            with running_server(folder) as server:
                _publish(folder, base_url=server.base_url, python=str(server.python), model=str(server.model))
                fcntl.flock(users, fcntl.LOCK_EX)
                # Whoever comes from here on waits until this server is stopped, and starts another.
                (folder / STATE).unlink()
        except SglangNotRunning as failure:
            _publish(folder, error=str(failure))


def _publish(folder: Path, **state: str) -> None:
    written = folder / f"{STATE}.new"
    written.write_text(json.dumps(state), encoding="utf-8")
    written.replace(folder / STATE)
    print("published", flush=True)


if __name__ == "__main__":
    if os.fork():
        os._exit(0)
    os.setsid()  # a Ctrl-C is for the run, whose end this process then sees
    with Path(sys.argv[1], "keeper.log").open("w") as log:
        os.dup2(log.fileno(), sys.stderr.fileno())
        main(Path(sys.argv[1]))
