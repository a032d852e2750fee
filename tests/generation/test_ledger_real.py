"""What a real engine counted beside what the ledger charges: equal where everybody stayed; where streams were cut, the
engine has what was on its way then, which is nobody's.
"""

from __future__ import annotations

import base64
import json
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from metering.ledger import UsageLedger
from metering.reconcile import Tokens, engine_totals, generation
from service.cli import run
from tests.generation.crowd import LEAVE_TOKENS, TENANTS, Visit, Watch, come, crowded, draw, outcomes, pool_of
from tests.service.desk import Desk
from tests.service.house import MASTER
from tests.support.sglang_server import ADMIN_KEY, API_KEY, MODEL, RunningServer

pytestmark = [pytest.mark.load, pytest.mark.slow, pytest.mark.timeout(1800)]

STAY, CROWD, SEED = 12, 40, 31
PIECES_IN_FLIGHT = 64
"""Tokens that the engine may write between the last one that reached us and its hearing of the abort."""
REST_S = 60.0


def metrics(server: RunningServer) -> str:
    """When nothing runs any more: the counters of a request are added at its end."""
    until = time.monotonic() + REST_S
    while True:
        text = httpx.get(f"{server.base_url}/metrics", trust_env=False).text
        running = [
            line for line in text.splitlines() if line.startswith(("sglang:num_running_reqs{", "sglang:num_queue"))
        ]
        if running and all(float(line.rpartition(" ")[2]) == 0 for line in running):
            return text
        assert time.monotonic() < until, running
        time.sleep(0.2)


def booked(desk: Desk, *, estimated: bool | None = None) -> Tokens:
    control, total = desk.house.services.control, Tokens()
    for tenant in TENANTS:
        ledger = UsageLedger(control.logs.of(control.authenticator.operator(tenant)))
        ledger.catch_up()
        total += generation(ledger, estimated=estimated)
    return total


def settled(server: RunningServer, before: Tokens) -> Tokens:
    """The engine's own count since then, once it no longer moves."""
    found = engine_totals(metrics(server)) - before
    while True:
        time.sleep(1.0)
        again = engine_totals(metrics(server)) - before
        if again == found:
            return found
        found = again


def reconciled(desk: Desk, folder: Path, texts: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> Any:
    """What `strongroom usage reconcile` says, with copies of the counters."""
    for name, text in zip(("before", "after"), texts, strict=True):
        (folder / name).write_text(text)
    capsys.readouterr()
    assert (
        run(["usage", "reconcile", "--before", str(folder / "before"), "--after", str(folder / "after"), "--json"]) == 0
    )
    return json.loads(capsys.readouterr().out)


def test_the_ledger_and_the_engine_count_the_same_and_cut_streams_are_nobodys(
    sglang: RunningServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, key in (("api.key", API_KEY), ("admin.key", ADMIN_KEY)):
        (tmp_path / name).write_text(key)
    pool = pool_of(
        sglang.base_url,
        model=MODEL,
        tokenizer=str(sglang.model),
        api_key_file=str(tmp_path / "api.key"),
        admin_key_file=str(tmp_path / "admin.key"),
    )
    with crowded(tmp_path, pool, monkeypatch) as (desk, watch):
        settings = desk.house.settings
        monkeypatch.setenv("STRONGROOM_DATA_DIR", settings.data_dir)
        settings.master_key_path.write_bytes(base64.b64encode(MASTER.value))
        settings.master_key_path.chmod(0o600)
        monkeypatch.setenv("STRONGROOM_MASTER_KEY_FILE", settings.master_key_file)
        monkeypatch.setenv("STRONGROOM_EMBEDDING__MODEL", "hashing:256")
        # Whatever the pool asks the engine for by itself when it begins is behind us then.
        come(desk, watch, staying(2, 1_000))
        opened = metrics(sglang)
        before, ours = engine_totals(opened), booked(desk)

        come(desk, watch, staying(STAY, 0))
        engine, ledger = settled(sglang, before), booked(desk) - ours
        with capsys.disabled():
            print(f"\n{STAY} streams that stayed: engine {engine}, ledger {ledger}")
        assert engine == ledger

        watch.clear()
        visits = draw(CROWD, SEED, first=2_000)
        come(desk, watch, visits)
        engine, ledger = settled(sglang, before), booked(desk) - ours
        unowned = engine - ledger
        cut, prompts = reached(desk, watch, visits)
        with capsys.disabled():
            print(
                f"{CROWD} more, {cut} of them cut when the engine had them: engine {engine}, ledger {ledger}, "
                f"of cut streams {booked(desk, estimated=True)}, nobody's {unowned}; prompts of those cut {prompts}; "
                f"input computed: engine {engine.prompt - engine.cached}, ledger {ledger.prompt - ledger.cached}"
            )
        # Cut or not, nobody is charged for more than the engine did, on either basis; the rest is what was in flight.
        assert 0 <= unowned.generated <= PIECES_IN_FLIGHT * cut
        assert 0 <= unowned.prompt <= prompts
        assert 0 <= unowned.prompt - unowned.cached <= prompts
        assert booked(desk, estimated=True).cached > 0, "no cut stream was charged less than its whole prompt"

        said = reconciled(desk, tmp_path, (opened, metrics(sglang)), capsys)
        assert all(row["agrees"] for row in said["tenants"])
        assert Tokens(**said["generation"]["engines"]) == engine
        # The command's window is all of the ledger's time: it has the two questions before the first copy too.
        assert Tokens(**said["generation"]["ledger"]) == ledger + ours


def staying(count: int, first: int) -> list[Visit]:
    return [
        Visit(number, "stays", deltas=1, delay_s=0.0, abruptly=False, max_tokens=8 + number % 5)
        for number in range(first, first + count)
    ]


def reached(desk: Desk, watch: Watch, visits: list[Visit]) -> tuple[int, int]:
    """How many left when the engine had their request, and what their prompts have together at most."""
    left = [one for one in visits if one.left_at and one.question in watch.engine_ids]
    assert all(one.max_tokens == LEAVE_TOKENS for one in left)
    found = outcomes(desk)
    known = [
        (use.get("served") or use["computed"])[0]
        for events in found.values()
        for event in events
        for use in ((event.get("cost") or {}).get("metered") or [])
        if use.get("computed")
    ]
    return len(left), len(left) * max(known, default=0)
