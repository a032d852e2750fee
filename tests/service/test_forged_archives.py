"""Archives that somebody else made: whoever has the public recovery key can seal one, so nothing in it is trusted."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from service.backup import LEDGER, MANIFEST
from tenancy import archive
from tests.service.test_backup import HANDBOOK, NOTICE, Node, here, nodes

__all__ = ["here", "nodes"]

Change = Callable[[dict[str, Any]], object]


@pytest.fixture
def sealed(here: Node) -> Path:
    """A backup and a ledger of acme, for the recovery key."""
    here.done("master", "recovery-key", here.folder / "desk.pem")
    for name, more in (("b", []), ("ledger", ["--ledger-only"])):
        here.done("backup", here.folder / name, "--tenant", "acme", "--for", here.folder / "desk.pem.pub", *more)
    return here.folder


def forged(folder: Path, source: str, change: Change, lines: bytes | None = None, times: int = 1) -> Path:
    """The archive `source` again, as a stranger would make it."""
    target = folder / f"forged-{secrets.token_hex(4)}"
    unlock = archive.Unlock(secrets.token_bytes(32), archive.read_private_key(folder / "desk.pem"))
    kind: archive.Kind = "tenant" if source == "b" else "ledger"
    public = archive.read_public_key(folder / "desk.pem.pub")
    with (
        archive.reading(folder / source, kind, unlock) as members,
        archive.writing(target, kind, secrets.token_bytes(32), public) as out,
    ):
        for name, content in members:
            data = content.read()
            if name == MANIFEST:
                manifest = json.loads(data)
                change(manifest)
                data = json.dumps(manifest).encode()
            elif name == LEDGER and lines is not None:
                data = lines
            for _ in range(times):
                archive.add(out, name, data)
    return target


@pytest.mark.slow
def test_no_archive_names_the_folder_of_another_tenant(here: Node, sealed: Path, nodes: Callable[[str], Node]) -> None:
    there = nodes("there")
    there.done("tenant", "create", "globex")
    there.done("key", "create", "--tenant", "globex", "--user", "ana")
    (there.folder / "docs").mkdir()
    (there.folder / "docs/notice.md").write_text(HANDBOOK)
    there.done("ingest", "--tenant", "globex", there.folder / "docs", "--allow", "tenant")
    before = there.files()
    for tenant_id in (
        f"../tenants/{there.tenant_id('globex')}",
        "system",
        "",
        "t_",
        f"t_{'0' * 32}\n",
        f"t_{'A' * 32}",
    ):
        bad = forged(sealed, "b", lambda manifest, name=tenant_id: manifest.update(tenant_id=name))  # type: ignore[misc]
        assert "cannot be read" in there.fails("restore", bad, "--key", sealed / "desk.pem", "--as", "copy")
    assert there.files() - {"staging"} == before
    assert there.cited("ana", NOTICE, "globex") == ["notice.md"]
    assert there.data("audit", "verify", "--tenant", "globex")[0]["verdict"] == "ok"
    # The same archive as it is restores.
    assert there.data("restore", sealed / "b", "--key", sealed / "desk.pem", "--as", "copy")["documents"] == 2


def test_what_does_not_fit_is_refused_with_nothing_left_behind(here: Node, sealed: Path) -> None:
    here.done("tenant", "delete", "acme", "--yes")
    before = here.files()
    changes: dict[str, Change] = {
        "file_key": lambda manifest: manifest.update(file_key="AAAA"),
        "audit_key": lambda manifest: manifest.update(audit_key="no base64"),
        "contract": lambda manifest: manifest.update(contract={"tier": "free"}),
        "name": lambda manifest: manifest.update(name="../x"),
        "audit_root": lambda manifest: manifest.update(audit_root="00"),
    }
    for name, change in changes.items():
        bad = forged(sealed, "b", change)
        assert here.fails("restore", bad, "--key", sealed / "desk.pem", "--although-deleted"), name
    twice = forged(sealed, "b", lambda _: None, times=2)
    assert "twice" in here.fails("restore", twice, "--key", sealed / "desk.pem", "--although-deleted")
    assert here.files() - {"staging"} == before - {"staging"}
    assert here.data("restore", sealed / "b", "--although-deleted")["documents"] == 2


def test_a_ledger_with_what_nobody_knows_is_refused(here: Node, sealed: Path, nodes: Callable[[str], Node]) -> None:
    there = nodes("there")
    restore: list[str | Path] = ["restore", sealed / "b", "--key", sealed / "desk.pem", "--ledger"]
    for line in (
        "{",
        '[1, 0.0, ["tenant", 1]]',
        '[1, 0.0, ["document"]]',
        '[1, 0.0, ["document", "1"]]',
        "[1, 0.0, []]",
    ):
        bad = forged(sealed, "ledger", lambda _: None, line.encode() + b"\n")
        assert "the ledger" in there.fails(*restore, bad), line
    good = forged(sealed, "ledger", lambda _: None, b'[1, 0.0, ["document", 1]]\n[2, 0.0, ["lost"]]\n')
    assert there.data(*restore, good)["withdrawn_again"] == {"document": 1}


@pytest.mark.slow
def test_the_tenant_that_is_replaced_is_the_one_of_the_id(here: Node, sealed: Path) -> None:
    here.done("tenant", "create", "globex")
    for name in ("acme", "globex"):
        here.done("tenant", "suspend", name)
    bad = forged(sealed, "b", lambda manifest: manifest.update(name="globex"))
    assert here.data("restore", bad, "--key", sealed / "desk.pem", "--replace")["tenant"] == "acme"
    here.done("tenant", "resume", "globex")
    assert here.data("document", "list", "--tenant", "globex") == []
