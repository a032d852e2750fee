"""The metrics layer against a served house with an admin listener, whole and broken."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace

import msgspec
import pytest
import uvicorn

from service.admin import create_admin
from service.attest import metrics
from service.attest.stage import Stage
from service.metrics.families import Families
from service.metrics.signals import Signals
from tests.attest.place import Place, claim, plain

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture
def listened(place: Place, stage: Stage) -> Iterator[Stage]:
    """The stage, with the admin listener of its house."""
    services = place.desk.house.services
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.bind(("127.0.0.1", 0))
    listening.listen()
    admin = msgspec.structs.replace(services.settings.server.admin, enabled=True, port=listening.getsockname()[1])
    server = uvicorn.Server(uvicorn.Config(create_admin(services, admin), log_config=None, lifespan="on"))
    thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listening])))
    thread.start()
    settings = msgspec.structs.replace(
        stage.settings, server=msgspec.structs.replace(stage.settings.server, admin=admin)
    )
    try:
        yield replace(stage, settings=settings)
    finally:
        server.should_exit = True
        thread.join()
        listening.close()


def test_it_passes(listened: Stage) -> None:
    found = metrics.examine(listened)
    assert found.verdict == "PASS", plain(found)
    assert [one.probes for one in found.claims] == [6, 11, 1]


def test_without_the_listener_its_claims_are_not_built(stage: Stage) -> None:
    found = metrics.examine(stage)
    assert [one.verdict for one in found.claims] == ["PASS", "NOT BUILT", "NOT BUILT"]


def test_a_figure_with_a_key_in_it_fails_it(listened: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    original, key = Families.exposition, listened.right.keys["ana"]
    monkeypatch.setattr(
        Families, "exposition", lambda *given: (original(*given)[0] + f"# {key}".encode(), "text/plain")
    )
    found = metrics.examine(listened)
    assert claim(found, "word of a question").verdict == "FAIL", plain(found)
    assert key not in plain(found)


def test_figures_that_count_another_tenants_requests_fail_it(
    place: Place, listened: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = place.control.tenants.show(listened.right.name)
    original = Signals.report
    monkeypatch.setattr(Signals, "report", lambda self, _, name: original(self, right.id, name))
    found = metrics.examine(listened)
    assert claim(found, "own requests alone").verdict == "FAIL", plain(found)


def test_figures_that_count_nothing_show_nothing(listened: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    original = Signals.report
    monkeypatch.setattr(Signals, "report", lambda self, _, name: original(self, "t_none", name))
    found = metrics.examine(listened)
    assert claim(found, "own requests alone").verdict == "INCONCLUSIVE", plain(found)
