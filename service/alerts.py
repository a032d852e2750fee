"""Whoever pays is told: a budget that has reached its soft share or its end is posted to a webhook.

    POST <webhook>   {"kind": "budget", "tenant": …, "scope": "tenant", "id": …, "share": 0.8, "limit": …, "used": …,
                      "month": "2026-11", "alert": …}

Amounts are micro-units. Each alert is tried a bounded number of times, with growing pauses, and never in a request's
way; the log tells of it in any case. Receivers tell repetitions apart by `alert`, the same for each attempt.
"""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import httpx
import msgspec
import structlog

from admission.counters import Crossing
from admission.settings import AlertSettings
from service.loopback import is_loopback
from tenancy.errors import InvalidInput

WAITING: Final = 1_000
"""Alerts that wait at most; further ones are left to the log."""
FIRST_PAUSE_S: Final = 1.0
LONGEST_PAUSE_S: Final = 60.0

_log = structlog.get_logger("strongroom.alerts")


class BudgetAlert(msgspec.Struct, frozen=True):
    """What is posted."""

    alert: str
    tenant: str
    scope: str
    id: str
    share: float
    limit: int
    used: int
    month: str
    kind: str = "budget"

    @classmethod
    def of(cls, crossing: Crossing) -> BudgetAlert:
        scope = crossing.scope
        parts = msgspec.json.encode([scope, crossing.share, crossing.limit, crossing.month])
        return cls(
            alert=hashlib.sha256(parts).hexdigest()[:32],
            tenant=scope.tenant,
            scope=scope.kind,
            id=scope.id,
            share=crossing.share,
            limit=crossing.limit,
            used=crossing.used,
            month=crossing.month,
        )


class Alerts:
    """Raises `InvalidInput` for an address that would send alerts in the clear, or a token that cannot be read."""

    def __init__(
        self,
        settings: AlertSettings,
        *,
        transport: httpx.AsyncBaseTransport | None = None,
        first_pause_s: float = FIRST_PAUSE_S,
    ) -> None:
        self._settings = settings
        self._transport = transport
        self._first_pause_s = first_pause_s
        self._waiting: asyncio.Queue[BudgetAlert] = asyncio.Queue(WAITING)
        self._headers = {"Content-Type": "application/json"}
        if settings.webhook:
            _require_private(settings.webhook)
        if settings.token_file:
            self._headers["Authorization"] = f"Bearer {_token(Path(settings.token_file))}"

    def __call__(self, crossing: Crossing) -> None:
        if not self._settings.webhook:
            return
        try:
            self._waiting.put_nowait(BudgetAlert.of(crossing))
        except asyncio.QueueFull:
            _log.error("too many alerts wait for the webhook: this one is told by the log alone")

    async def run(self) -> None:
        """Until cancelled: post what comes."""
        async with httpx.AsyncClient(
            transport=self._transport, timeout=self._settings.timeout_s, trust_env=False
        ) as client:
            while True:
                await self._post(client, await self._waiting.get())
                self._waiting.task_done()

    async def _post(self, client: httpx.AsyncClient, alert: BudgetAlert) -> None:
        pause = self._first_pause_s
        for attempt in range(self._settings.attempts):
            if attempt:
                await asyncio.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE_S)
            try:
                reply = await client.post(
                    self._settings.webhook, content=msgspec.json.encode(alert), headers=self._headers
                )
            except httpx.HTTPError as error:
                _log.warning("the webhook for alerts was not reached", error=type(error).__name__)
                continue
            if reply.is_success:
                return
            _log.warning("the webhook for alerts refused", status=reply.status_code)
            if reply.is_client_error and reply.status_code not in (408, 429):
                break
        _log.error("an alert was not delivered", tenant=alert.tenant, scope=alert.scope, month=alert.month)


def _require_private(address: str) -> None:
    try:
        # What the client cannot read would end the task that posts, at the first alert.
        parts = urlsplit(str(httpx.URL(address)))
        host, _ = parts.hostname or "", parts.port
    except (ValueError, httpx.InvalidURL):
        raise InvalidInput(
            "the address for alerts is no URL", item="admission.alerts.webhook", remedy="give an https address"
        ) from None
    if parts.scheme == "https" and host:
        return
    if parts.scheme != "http" or not host or not is_loopback(host):
        raise InvalidInput(
            "alerts are posted over https, or to this machine",
            item="admission.alerts.webhook",
            remedy="give an https address",
        )


def _token(file: Path) -> str:
    try:
        return file.expanduser().read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        raise InvalidInput(
            "the token for alerts cannot be read", item="admission.alerts.token_file", remedy=str(file)
        ) from None
