"""The server's own attestations: every so many hours, through its listening address, in a thread of their own."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import structlog
from sqlalchemy.exc import SQLAlchemyError

from service.attest.caller import Caller, Stopped
from service.attest.canaries import sweep
from service.attest.report import FOLDER, write
from service.attest.run import attest
from service.attest.stage import options_of
from service.control import Control
from tenancy.errors import StrongroomError

SETTLE_S: Final = 60.0
"""Seconds from the start of a server to its first attestation, where one is due."""
_HOUR_S: Final = 3_600.0

_log = structlog.get_logger("strongroom.attest")


async def attest_regularly(control: Control, port: Callable[[], int | None]) -> None:
    """Attest when the last report is older than `attest.every_h`; `port` is the one that the server listens on, None
    while it does not. A cancellation waits until the canaries are gone.
    """
    every = control.settings.attest.every_h * _HOUR_S
    if not every:
        return
    await asyncio.sleep(min(SETTLE_S, every))
    while True:
        wait = _newest(control.settings.data_path / FOLDER) + every - time.time()
        # Never longer than from one to the next: the clock may have been set back since.
        await asyncio.sleep(min(max(0.0, wait), every))
        listening = port()
        if listening is None:
            await asyncio.sleep(1.0)
            continue
        stop = threading.Event()
        run = asyncio.create_task(asyncio.to_thread(_attested, control, listening, stop))
        try:
            await asyncio.shield(run)
        except asyncio.CancelledError:
            stop.set()
            await run
            raise


def sweep_canaries(control: Control) -> None:
    """At the start of a server: remove what an attestation left that did not end. What cannot be removed is logged."""
    try:
        left = sweep(control)
    except (StrongroomError, SQLAlchemyError, OSError, ValueError) as error:
        _log.error("canary tenants of an earlier attestation may still be there", error=type(error).__name__)
        return
    if left:
        _log.warning("canary tenants of an attestation that did not end were removed", count=len(left))


def _attested(control: Control, port: int, stop: threading.Event) -> None:
    folder = control.settings.data_path / FOLDER
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    caller = Caller.of(control.settings.server, port=port, stopped=stop.is_set)
    try:
        report = attest(control, caller, options_of(control.settings.attest))
        written, _ = write(report, folder)
    except Stopped:
        return
    except (StrongroomError, SQLAlchemyError, OSError) as error:
        _log.error("an attestation did not end", error=type(error).__name__)
        # Not again at once: its time counts like that of one that ended.
        (folder / "failed").touch()
        return
    finally:
        caller.close()
    said = {layer["layer"]: layer["verdict"] for layer in report["layers"]}
    level = {"FAIL": _log.error, "INCONCLUSIVE": _log.warning}.get(report["verdict"], _log.info)
    level("attested", verdict=report["verdict"], layers=said, report=str(written))


def _newest(folder: Path) -> float:
    """When the last attestation ended, UTC epoch seconds; 0 where there was none."""
    return max((path.stat().st_mtime for path in folder.glob("*") if path.is_file()), default=0.0)
