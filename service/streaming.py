"""Server-sent events (WHATWG HTML, section 9.2), started only once the first event is there.

So an error before it becomes a proper status code; one after it is a last event, in the form of the route.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any, Final

import msgspec
import structlog
from litestar import Response
from litestar.response.base import ASGIResponse
from litestar.types import Receive, Scope, Send

from service.disconnect import ClientGone, while_connected
from tenancy.errors import StrongroomError

MEDIA_TYPE: Final = "text/event-stream"

_log = structlog.get_logger("strongroom.stream")


Events = Callable[[], AsyncGenerator[bytes, None]]
Failed = Callable[[Exception], bytes]


class EventStream(Response[None]):
    """A response of events, each made by `event_bytes`; `events` is made and closed in the task that sends, and
    `failed` makes the event that tells of an error in between.
    """

    def __init__(self, events: Events, failed: Failed) -> None:
        super().__init__(None, status_code=200, media_type=MEDIA_TYPE)
        self._events = events
        self._failed = failed

    def to_asgi_response(self, *_: Any, **__: Any) -> ASGIResponse:
        return _Sender(self._events, self._failed)


def event_bytes(data: Any, name: str | None = None) -> bytes:
    """One event of JSON `data`; JSON has no raw line breaks, so that one `data` line holds it."""
    head = b"" if name is None else f"event: {name}\n".encode()
    return head + b"data: " + msgspec.json.encode(data) + b"\n\n"


class _Sender(ASGIResponse):
    def __init__(self, events: Events, failed: Failed) -> None:
        super().__init__(media_type=MEDIA_TYPE)
        self._events = events
        self._failed = failed
        self._started = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        try:
            await while_connected(receive, self._send(send))
        except ClientGone:
            # Nobody is there to be told, and a client that leaves a stream is no fault of the service.
            if not self._started:
                raise

    async def _send(self, send: Send) -> None:
        async with aclosing(self._events()) as events:
            try:
                async for event in events:
                    if not self._started:
                        self._started = True
                        await _start(send)
                    await _body(send, event)
            except Exception as error:
                if not self._started:
                    raise
                if not isinstance(error, StrongroomError):
                    _log.exception("stream failed")
                await _body(send, self._failed(error))
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _start(send: Send) -> None:
    headers = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"x-accel-buffering", b"no")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})


async def _body(send: Send, event: bytes) -> None:
    await send({"type": "http.response.body", "body": event, "more_body": True})
