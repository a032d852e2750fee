"""`[database]`: what the settings take, what doctor finds, and what a server that is away looks like."""

from __future__ import annotations

from pathlib import Path

import pytest

from service.cli import run
from service.control import open_control
from service.diagnosis import Finding, examine
from service.settings import Settings, load_settings
from tenancy.errors import InvalidInput, Unavailable
from tenancy.keys import MasterKey
from tests.support.postgres import fresh_database

MASTER = MasterKey(bytes(range(32)))


def settings(folder: Path, **database: str) -> Settings:
    return load_settings(
        environment={
            "STRONGROOM_DATA_DIR": str(folder / "data"),
            "STRONGROOM_EMBEDDING__MODEL": "hashing:64",
            **{f"STRONGROOM_DATABASE__{name.upper()}": value for name, value in database.items()},
        }
    )


def finding(chosen: Settings, name: str) -> Finding:
    return next(found for found in examine(chosen) if found.check == name)


def test_without_an_address_the_data_are_files(tmp_path: Path) -> None:
    assert finding(settings(tmp_path), "database").state == "ok"
    control = open_control(settings(tmp_path), MASTER)
    assert not control.tenants.storage.shared
    control.tenants.create("acme")
    assert (tmp_path / "data" / "control.sqlite").exists()
    control.close()


def test_with_an_address_nothing_but_caches_is_a_file(tmp_path: Path) -> None:
    with fresh_database() as url:
        found = finding(settings(tmp_path, url=url), "database")
        assert (found.state, "PostgreSQL" in found.finding) == ("ok", True)
        control = open_control(settings(tmp_path, url=url), MASTER)
        control.tenants.create("acme")
        control.tenants.create_key("acme", "ana", [])
        assert control.tenants.storage.shared
        assert [path for path in (tmp_path / "data").rglob("*") if path.is_file()] == []
        control.close()


def test_a_pool_larger_than_the_server_is_named(tmp_path: Path) -> None:
    with fresh_database() as url:
        found = finding(settings(tmp_path, url=url, pool_size="1000"), "database")
    assert (found.state, "pool" in found.finding) == ("note", True)


def test_a_server_that_is_away_is_named_and_nothing_opens(tmp_path: Path) -> None:
    away = settings(tmp_path, url="postgresql://strongroom@localhost:1/strongroom")
    found = finding(away, "database")
    assert (found.state, "away" in found.finding) == ("wrong", True)
    with pytest.raises(Unavailable, match="away"):
        open_control(away, MASTER)


@pytest.mark.parametrize(("name", "value"), [("pool_size", "1"), ("lock_timeout_s", "0"), ("url_", "x")])
def test_a_setting_that_cannot_be_is_refused(tmp_path: Path, name: str, value: str) -> None:
    with pytest.raises(InvalidInput, match=r"database\."):
        settings(tmp_path, **{name: value})


def test_the_master_key_is_changed_where_the_keyring_is_a_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    key, new = tmp_path / "master.key", tmp_path / "new.key"
    monkeypatch.setenv("STRONGROOM_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("STRONGROOM_MASTER_KEY_FILE", str(key))
    with fresh_database() as url:
        monkeypatch.setenv("STRONGROOM_DATABASE__URL", url)
        assert run(["doctor", "--create-master-key"]) == 0
        assert run(["tenant", "create", "acme"]) == 0
        assert run(["master", "show"]) == 0
        assert run(["master", "rotate", "--new-key-file", str(new)]) == 2
        assert f"strongroom master create {new}" in capsys.readouterr().err
        assert run(["master", "create", str(new)]) == 0
        assert run(["master", "rotate", "--new-key-file", str(new)]) == 0
        assert run(["master", "show"]) == 1
        assert run(["tenant", "list"]) == 2
        key.unlink()
        assert run(["doctor", "--create-master-key"]) == 1
        assert "the database was written under another master key" in capsys.readouterr().err
        new.rename(key)
        assert run(["master", "show"]) == 0
        assert run(["tenant", "list"]) == 0
        assert "acme" in capsys.readouterr().out
    assert [path for path in (tmp_path / "data").rglob("*") if path.is_file()] == []
