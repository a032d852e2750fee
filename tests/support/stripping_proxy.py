"""Stands before a real generator and rewrites bodies, as some routers do: of SGLang's request it leaves out fields."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx


@contextmanager
def stripping_proxy(target: str, *fields: str, port: int = 0) -> Iterator[str]:
    """The address of a proxy before `target`, which drops `fields` from every body and passes on all else."""
    client = httpx.Client(base_url=target, trust_env=False, timeout=120)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._pass_on(None)

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self._pass_on({name: value for name, value in body.items() if name not in fields})

        def _pass_on(self, body: dict[str, object] | None) -> None:
            key = self.headers.get("Authorization")
            headers = {"Authorization": key} if key else {}
            answer = client.request(self.command, self.path, json=body, headers=headers)
            self.send_response(answer.status_code)
            self.send_header("Content-Type", answer.headers["content-type"])
            self.send_header("Content-Length", str(len(answer.content)))
            self.end_headers()
            self.wfile.write(answer.content)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
        client.close()
