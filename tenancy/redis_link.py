"""One process's connections to one Redis server, whoever holds them: whether it is left alone, what it has to be before
it is trusted, and what its failures mean. The client itself stands with those who use it.

Nothing that is sent or received stands in a message or a log.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from tenancy.breaker import Breaker
from tenancy.errors import Unavailable
from tenancy.redis_settings import RedisSettings

Failure = Literal["full", "replica", "refused", "away"]


@dataclass(frozen=True, slots=True)
class Use:
    """What the server is for: `section` of the settings, `least` version, what is lost where it `evicts` by itself, and
    what to do `when_full`. Failures are `failed`, a server that must not be used is `unfit`. `away` and `back` are
    lines of `log`, the first with a place for the reason.
    """

    section: str
    least: tuple[int, int]
    evicts: str
    when_full: str
    failed: type[Unavailable]
    unfit: type[Unavailable]
    away: str
    back: str
    log: logging.Logger


class ServerLink:
    """What is known of the server. Safe for threads."""

    def __init__(self, settings: RedisSettings, use: Use, breaker: Breaker) -> None:
        self.item = f"redis at {settings.url}"
        self._use = use
        self._breaker = breaker
        self._checked = False
        self._detail = "not asked yet"
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()

    @property
    def available(self) -> bool:
        return not self._breaker.is_open

    @property
    def detail(self) -> str:
        return self._detail

    @property
    def counts(self) -> Mapping[str, int]:
        """Events since the process began, by name."""
        with self._lock:
            return dict(self._counts)

    def _admit(self, missed: str) -> None:
        """Raises at once while the server is left alone, and counts what was `missed`."""
        if not self._breaker.admits():
            self._count(missed)
            raise self._use.failed(
                "is away and left alone for a while", item=self.item, remedy="see `strongroom doctor`"
            )

    def _fit(self, found: Mapping[str, Any]) -> str:
        """The version, by `INFO server memory`. Raises the use's `unfit`."""
        version = str(found.get("redis_version", "0"))
        parts = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
        if parts < self._use.least:
            raise self._unfit(f"has version {version}", f"run Redis {self._use.least[0]} or newer")
        policy = str(found.get("maxmemory_policy", "unknown"))
        if policy != "noeviction":
            raise self._unfit(f"has maxmemory-policy {policy}", f"set maxmemory-policy noeviction: {self._use.evicts}")
        return version

    def _unfit(self, reason: str, remedy: str) -> Unavailable:
        self._note(f"not fit: it {reason}", at_once=True)
        return self._use.unfit(reason, item=self.item, remedy=remedy)

    def _succeeded(self) -> None:
        self._detail = "available"
        if self._breaker.succeeded():
            self._count("recoveries")
            self._use.log.warning(self._use.back)

    def _failed(self, failure: Failure, kind: str, *, answers: bool = False) -> Unavailable:
        """The error of a failure of this `kind`. A server that `answers` costs no time; one that does not, or refuses
        everything, is left alone.
        """
        failed, section = self._use.failed, self._use.section
        if failure == "full":
            # What is there can still be read; only nothing is added.
            return failed("is out of memory", item=self.item, remedy=self._use.when_full)
        if failure == "replica":
            self._checked = False
            return failed("is a replica, which takes no writes", item=self.item, remedy="name the primary")
        if not answers:
            self._note(f"away ({kind})", at_once=failure == "refused")
        if failure == "refused":
            remedy = f"check {section}.username, {section}.password_file and the user's ACL"
            return failed("refuses this user or password", item=self.item, remedy=remedy)
        return failed(f"cannot be used ({kind})", item=self.item, remedy="check that it runs and is reachable")

    def _note(self, detail: str, *, at_once: bool) -> None:
        self._checked = False
        self._detail = detail
        if self._breaker.failed(at_once=at_once):
            self._count("outages")
            self._use.log.warning(self._use.away, detail)

    def _count(self, event: str) -> None:
        with self._lock:
            self._counts[event] += 1
