"""A large HTML page, parsed in a process of its own that can be stopped; see `html`."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from indexing.parse import html_text
from indexing.parse.failure import ParseFailure
from indexing.parse.html_text import MEMORY_BYTES, Page, Segment


def run(markup: str, seconds: float) -> Page:
    """Walk `markup` elsewhere. Raises `ParseFailure` ("too_large") when it takes too much time or memory."""
    # The child gets the import path and nothing else: no keys, no settings. It runs the module as a script,
    # since importing the package would load every other parser too.
    environment = {"PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)}
    try:
        done = subprocess.run(  # noqa: S603 (a fixed command; the page goes in on standard input)
            [sys.executable, "-P", html_text.__file__],
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
    title, segments, language = json.loads(done.stdout)
    return Page(title, [Segment(*segment) for segment in segments], language)
