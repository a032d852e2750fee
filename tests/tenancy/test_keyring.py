"""The keyring: one root, wrapped by whichever master key, replaced in one step."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from sqlalchemy import MetaData

from tenancy import keyring as module
from tenancy.control import CONTROL_FILE, Tenants
from tenancy.database import ConnectionPools, Database
from tenancy.errors import Corrupt, InvalidInput, NotFound
from tenancy.keyring import KEYRING_FILE, FileKeyring, create_root, master_of, open_root, rotate_master
from tenancy.keys import MasterKey, RootKey
from tenancy.schema import control

OTHER = MasterKey(bytes(32))


@pytest.fixture
def store(tmp_path: Path) -> FileKeyring:
    return FileKeyring(tmp_path / KEYRING_FILE)


def test_the_root_is_random_private_and_the_same_for_everybody(store: FileKeyring, master: MasterKey) -> None:
    assert open_root(store, master) is None
    root = create_root(store, master)
    assert root.value != master.value
    assert open_root(store, master) == root
    assert create_root(store, master) == root
    assert stat.S_IMODE(store.path.stat().st_mode) == 0o600
    assert root.value not in store.path.read_bytes()
    assert sorted(path.name for path in store.path.parent.iterdir()) == [KEYRING_FILE]


def test_another_master_key_is_told_from_a_damaged_keyring(store: FileKeyring, master: MasterKey) -> None:
    create_root(store, master)
    with pytest.raises(InvalidInput, match=master.fingerprint) as wrong:
        open_root(store, OTHER)
    assert "master-key.md" in str(wrong.value)
    text = store.path.read_text()
    for damaged in ("", "{", text.replace('"wrapped": "', '"wrapped": "AAAA'), text.replace('"r_', '"r_0')):
        store.path.write_text(damaged)
        with pytest.raises(Corrupt, match="damaged"):
            open_root(store, master)


def test_rotation_keeps_the_root_and_can_be_repeated(store: FileKeyring, master: MasterKey) -> None:
    with pytest.raises(NotFound):
        rotate_master(store, master, OTHER)
    root = create_root(store, master)
    for _ in range(2):
        rotate_master(store, master, OTHER)
        assert open_root(store, OTHER) == root
        assert master_of(store) == OTHER.fingerprint
    with pytest.raises(InvalidInput):
        open_root(store, master)
    with pytest.raises(InvalidInput):
        rotate_master(store, MasterKey(b"3" * 32), master)
    assert open_root(store, OTHER) == root


def test_a_rotation_that_dies_before_its_one_step_has_changed_nothing(
    store: FileKeyring, master: MasterKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = create_root(store, master)

    def dies(self: Path, target: Path) -> Path:
        raise KeyboardInterrupt

    monkeypatch.setattr(module.Path, "rename", dies)
    with pytest.raises(KeyboardInterrupt):
        rotate_master(store, master, OTHER)
    assert open_root(store, master) == root


def test_tenants_go_on_through_a_rotation(tmp_path: Path, master: MasterKey) -> None:
    running = Tenants(tmp_path / "data", master)
    running.create("acme")
    rotate_master(FileKeyring(tmp_path / "data" / KEYRING_FILE), master, OTHER)
    running.create("globex")
    with pytest.raises(InvalidInput):
        Tenants(tmp_path / "data", master)
    assert [record.name for record in Tenants(tmp_path / "data", OTHER).all()] == ["acme", "globex"]
    running.close()


def test_a_directory_without_a_keyring_keeps_the_master_as_its_root(tmp_path: Path, master: MasterKey) -> None:
    first = MetaData()
    for table in control.sorted_tables:
        if table.name not in {"files", "leftovers"}:
            made = table.to_metadata(first)
            if table.name == "api_keys":
                made._columns.remove(made.c.work)
    older = Database(tmp_path / CONTROL_FILE, RootKey(master.value).purpose("control"), first, ConnectionPools())
    with older.reading():
        pass
    with pytest.raises(Corrupt, match="keyring is missing"):
        Tenants(tmp_path, OTHER)
    assert not (tmp_path / KEYRING_FILE).exists()
    assert Tenants(tmp_path, master).all() == []
    assert open_root(FileKeyring(tmp_path / KEYRING_FILE), master) == RootKey(master.value)


def test_a_missing_keyring_or_control_plane_is_never_made_anew(tmp_path: Path, master: MasterKey) -> None:
    tenants = Tenants(tmp_path, master)
    tenants.create("acme")
    tenants.close()
    for name in (KEYRING_FILE, CONTROL_FILE):
        kept = (tmp_path / name).rename(tmp_path / "kept")
        with pytest.raises(Corrupt, match="missing"):
            Tenants(tmp_path, master)
        assert not (tmp_path / name).exists()
        kept.rename(tmp_path / name)
    assert [record.name for record in Tenants(tmp_path, master).all()] == ["acme"]
