"""Canary tenants come and go, also after a crash, and no real tenant notices."""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from service.attest.canaries import FOLDER, canaries, sweep
from service.attest.report import markdown, write
from service.attest.run import attest, digest
from service.cli import run
from tenancy.deletion import verify
from tenancy.errors import Unavailable
from tests.attest.place import FEW, MEMORY, Place, placed
from tests.layout.scope_rule import ROOT
from tests.service.test_server import command, serving
from tests.support.postgres import fresh_database

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

CRASH = """
import os
from service.attest.canaries import canaries
from service.control import open_from

with canaries(open_from(None)) as pair:
    print(pair.left.name, pair.right.name, flush=True)
    os.kill(os.getpid(), 9)
"""


def names(place: Place) -> list[str]:
    return [record.name for record in place.control.tenants.all()]


def left(place: Place) -> list[str]:
    return sorted(path.name for path in (place.control.settings.data_path / FOLDER).glob("*"))


def of_acme(place: Place) -> tuple[Any, ...]:
    """What would show that somebody touched acme: its log, its epochs."""
    principal = place.control.authenticator.operator("acme")
    log = place.control.logs.of(principal)
    log.flush()
    with place.control.tenants.open(principal).reading() as view:
        return log.head().size, log.head().root, view.epochs


def test_an_attestation_is_signed_and_on_record_and_leaves_every_tenant_alone(tmp_path: Path) -> None:
    with placed() as place:
        before = of_acme(place)
        report = attest(place.control, place.caller, FEW)
        assert of_acme(place) == before
        assert names(place) == ["acme"]
        assert left(place) == []
        assert len(report["canaries"]) == 2
        public = base64.b64decode(place.control.tenants.public_key)
        assert verify(report, public)
        assert not verify({**report, "verdict": "PASS!"}, public)
        events = place.desk.house.system_events()
        event = events[-1]
        assert (event["action"], event["outcome"]) == ("attest", "allowed")
        assert (event["detail"]["verdict"], event["detail"]["sha256"]) == (report["verdict"], digest(report))
        made = [one["action"] for one in events if one["phase"] == "outcome" and one.get("detail", {}).get("why")]
        assert made == ["tenant.create", "tenant.create", "tenant.delete", "tenant.delete"]
        path, page = write(report, tmp_path / "reports")
        assert verify(json.loads(path.read_text()), public)
        assert page.read_text() == markdown(report)
        assert all(f"| {layer['layer']} | {layer['verdict']} |" in markdown(report) for layer in report["layers"])
        checked = subprocess.run(
            [sys.executable, ROOT / "examples/verify_certificate.py", path, place.control.tenants.public_key],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert checked.stdout.startswith("valid: isolation attestation")


def test_an_attestation_of_tenants_on_postgresql() -> None:
    with fresh_database() as url, placed(STRONGROOM_DATABASE__URL=url) as place:
        report = attest(place.control, place.caller, FEW)
        found = {layer["layer"]: layer["verdict"] for layer in report["layers"]}
        assert found["retrieval and index"] == found["contracts"] == "PASS", markdown(report)
        assert "FAIL" not in found.values(), markdown(report)
        assert (names(place), left(place)) == (["acme"], [])


def test_canaries_go_whatever_ends_the_block() -> None:
    with placed() as place:

        def stopped() -> None:
            with canaries(place.control) as pair:
                assert names(place) == ["acme", pair.left.name, pair.right.name]
                assert left(place) != []
                # Those of a run that still goes on are nobody's to sweep.
                assert sweep(place.control) == []
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            stopped()
        assert (names(place), left(place)) == (["acme"], [])


def test_what_a_crash_left_is_swept_and_nothing_else() -> None:
    with placed() as place:
        settings = place.control.settings
        place.desk.house.put("attest-0123456789abcdef-left", "a.md", "A customer of this name.", allow=["tenant"])
        environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "STRONGROOM_DATA_DIR": settings.data_dir,
            "STRONGROOM_MASTER_KEY": base64.urlsafe_b64encode(bytes(range(32))).decode(),
        }
        crashed = subprocess.run([sys.executable, "-c", CRASH], env=environment, capture_output=True, text=True)
        assert crashed.returncode == -signal.SIGKILL, crashed.stderr
        gone = crashed.stdout.split()
        assert set(gone) < set(names(place))
        (place.control.settings.data_path / FOLDER / "forged.canaries").write_text('["acme"]')
        assert sorted(sweep(place.control)) == sorted(gone)
        assert names(place) == ["acme", "attest-0123456789abcdef-left"]
        assert left(place) == []


def test_a_service_that_is_away_is_said_so_before_any_tenant_is_made() -> None:
    from service.attest.caller import Caller

    with placed() as place:
        with pytest.raises(Unavailable):
            attest(place.control, Caller("http://127.0.0.1:9"), FEW)
        assert all(event["action"] != "tenant.create" or "why" not in event.get("detail", {})
                   for event in place.desk.house.system_events())  # fmt: skip


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    folder = Path(MEMORY or tmp_path) / f"strongroom-attest-{os.getpid()}"
    clean = {name: value for name, value in os.environ.items() if not name.startswith("STRONGROOM_")}
    return {
        **clean,
        "PYTHONPATH": str(ROOT),
        "STRONGROOM_DATA_DIR": str(folder),
        "STRONGROOM_MASTER_KEY": "A" * 43 + "=",
        "STRONGROOM_EMBEDDING__MODEL": "hashing:256",
        "STRONGROOM_ATTEST__PROBES": "2",
        "STRONGROOM_ATTEST__TIMING": "0",
        "STRONGROOM_ATTEST__LOAD": "0",
        "STRONGROOM_ATTEST__LOG_FILE": str(tmp_path / "log"),
    }


def test_the_command_beside_a_server(
    environment: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(environment, tmp_path / "log", limit_s=200) as (_, address):
        told = command(environment, "attest", "--url", address, "--json", "--output", str(tmp_path / "reports"))
        assert told.returncode == 1, told.stderr
        report = json.loads(told.stdout)
        found = {layer["layer"]: layer["verdict"] for layer in report["layers"]}
        assert found["retrieval and index"] == found["logs"] == "PASS", told.stdout
        assert (found["timing"], found["KV memory"]) == ("INCONCLUSIVE", "NOT BUILT")
        assert "no tenant" not in found["contracts"]
        assert json.loads(command(environment, "tenant", "list", "--json").stdout) == []
        assert len(list((tmp_path / "reports").glob("*.md"))) == 1
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    for wrong in (["--url", address, "--probes", "0"], ["--url", "ftp://here"], ["--url", address, "--ca", "/nothing"]):
        assert run(["attest", *wrong]) == 2
    assert run(["attest", "--url", address]) not in {0, 2}


def test_a_folder_that_takes_no_report_is_said_before_anything_is_probed(
    environment: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "file").write_text("")
    assert run(["attest", "--url", "http://127.0.0.1:9", "--output", str(tmp_path / "file")]) == 2
    assert "no folder for reports" in capsys.readouterr().err


def test_a_server_attests_itself(environment: dict[str, str], tmp_path: Path) -> None:
    environment |= {"STRONGROOM_ATTEST__EVERY_H": "0.0005"}
    with serving(environment, tmp_path / "log", limit_s=200) as (process, _):
        line = awaited(process, tmp_path / "log", '"event": "attested"')
        assert json.loads(line)["layers"]["retrieval and index"] == "PASS"
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    assert json.loads(command(environment, "tenant", "list", "--json").stdout) == []


def awaited(process: subprocess.Popen[str], log: Path, wanted: str) -> str:
    """The first line of `log` that holds `wanted`, followed as it grows until the process ends."""
    follower = subprocess.Popen(
        ["tail", f"--pid={process.pid}", "-n", "+1", "-s", "0.1", "-f", log], stdout=subprocess.PIPE, text=True
    )
    assert follower.stdout is not None
    try:
        for line in follower.stdout:
            if wanted in line:
                return line
    finally:
        follower.kill()
        follower.wait()
        follower.stdout.close()
    raise AssertionError(log.read_text())
