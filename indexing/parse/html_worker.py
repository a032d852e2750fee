"""A large HTML page, parsed in a process of its own that can be stopped; see `html`."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from typing import Final

import msgspec

from indexing.parse.failure import ParseFailure
from indexing.parse.html_text import Page, walk

MEMORY_BYTES: Final = 4 * 2**30


def run(markup: str, seconds: float) -> Page:
    """Walk `markup` elsewhere. Raises `ParseFailure` ("too_large") when it takes too much time or memory."""
    # The child gets the import path and nothing else: no keys, no settings.
    environment = {"PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)}
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-c", "from indexing.parse.html_worker import main; main()"],
            input=markup.encode("utf-8"),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            timeout=seconds,
            check=True,
        )
    except (subprocess.TimeoutExpired, subprocess.CalledProcessError):
        raise ParseFailure(
            "too_large",
            f"the page's markup takes more than {seconds:.0f} s or {MEMORY_BYTES >> 30} GiB to parse",
            remedy="split the page, or save it as text",
        ) from None
    return Page(*msgspec.json.decode(done.stdout, type=tuple[str, str | None, bool]))


def main() -> None:
    """The child: markup on standard input, a page as JSON on standard output."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    page = walk(sys.stdin.buffer.read().decode("utf-8"))
    sys.stdout.buffer.write(msgspec.json.encode(tuple(page)))
