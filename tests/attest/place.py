"""A served house with two canary tenants in it, for examining one layer at a time, whole or broken on purpose."""

from __future__ import annotations

import json
import logging
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
import structlog

from service.attest.caller import Caller
from service.attest.canaries import Pair, canaries
from service.attest.claims import Claim, Layer
from service.attest.running import publish
from service.attest.stage import Options, Stage
from service.control import Control
from service.logs import configure_logging
from service.wiring import ServerLock
from tenancy.identity import Authenticator, Principal
from tests.service.desk import Desk, serving

MEMORY: Final = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
FEW: Final = Options(probes=4, timing=0, rounds=2, load=0)


@dataclass
class Place:
    """`log` is the file that log lines go to while `logging_to` it."""

    folder: Path
    desk: Desk
    caller: Caller

    @property
    def control(self) -> Control:
        return self.desk.house.services.control

    @property
    def log(self) -> Path:
        return self.folder / "server.log"


@contextmanager
def placed(**environment: str) -> Iterator[Place]:
    """A house with a real tenant, at a served port, which holds the lock of a server."""
    with (
        tempfile.TemporaryDirectory(dir=MEMORY, prefix="strongroom-test-") as folder,
        serving(Path(folder), spoken=False, **environment) as desk,
    ):
        settings = desk.house.settings
        desk.house.put("acme", "notice.md", "The notice period is three months.", allow=["tenant"])
        lock = ServerLock(settings.data_path)
        publish(settings)
        caller = Caller(desk.address)
        try:
            yield Place(Path(folder), desk, caller)
        finally:
            caller.close()
            lock.release()


@contextmanager
def staged(place: Place, options: Options = FEW) -> Iterator[Stage]:
    with canaries(place.control) as pair:
        yield Stage(place.desk.house.settings, place.caller, pair, options)


@contextmanager
def logging_to(path: Path) -> Iterator[None]:
    """Log lines as a server writes them, into a file."""
    root = logging.getLogger()
    before = (root.handlers, root.level)
    configure_logging()
    with path.open("a", buffering=1, encoding="utf-8") as file:
        root.handlers[0].setStream(file)  # type: ignore[attr-defined]
        try:
            yield
        finally:
            root.handlers, root.level = before
            structlog.reset_defaults()


def confuse_tenants(patch: pytest.MonkeyPatch, pair: Pair) -> None:
    """Whoever comes with a key of the right tenant is taken for the same person of the left one."""
    original = Authenticator.authenticate

    def authenticate(self: Authenticator, credential: str, source: str) -> Principal:
        twins = {key: pair.left.keys[user] for user, key in pair.right.keys.items() if user in pair.left.keys}
        return original(self, twins.get(credential, credential), source)

    patch.setattr(Authenticator, "authenticate", authenticate)


def verdicts(layer: Layer) -> dict[str, str]:
    return {one.claim: one.verdict for one in layer.claims}


def claim(layer: Layer, containing: str) -> Claim:
    (found,) = [one for one in layer.claims if containing in one.claim]
    return found


def plain(layer: Layer) -> str:
    """What a failing assertion shows."""
    return json.dumps([[one.claim, one.verdict, one.finding] for one in layer.claims], indent=1, ensure_ascii=False)


def table(**values: Any) -> str:
    """A TOML table on one line."""
    return "{" + ", ".join(f"{name} = {json.dumps(value)}" for name, value in values.items()) + "}"
