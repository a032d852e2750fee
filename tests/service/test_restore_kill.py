"""kill -9 in the middle of a restore: the tenant is there as a whole, or not at all, and nothing is left behind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import select

from service.backup import back_up
from service.control import Control, open_control
from service.restore import Wish, restore_tenant
from service.settings import Settings, load_settings
from tenancy import directory, schema
from tests.service.house import MASTER

KILLED = """
import os, signal, sys
from pathlib import Path
from service.control import open_control
from service.restore import Wish, restore_tenant
from service.settings import load_settings
from tenancy import adoption, rotation
from tenancy.keys import MasterKey

folder, point = Path(sys.argv[1]), sys.argv[2]

def dies(*_):
    os.kill(os.getpid(), signal.SIGKILL)

def at(path):
    if path.name == point:
        dies()

adoption.sync_directory = at
rotation.reached = lambda name: dies() if name == point else None
if point == "recorded":
    adoption.Adoption._record = dies
settings = load_settings(environment={"STRONGROOM_DATA_DIR": str(folder / "data")})
replace = sys.argv[3] == "replace"
wish = Wish(replace=True) if replace else Wish(name="copy")
restore_tenant(open_control(settings, MasterKey(bytes(range(32)))), folder / "b", wish)
"""


def opened(folder: Path) -> Control:
    settings: Settings = load_settings(environment={"STRONGROOM_DATA_DIR": str(folder / "data")})
    return open_control(settings, MASTER)


def users(control: Control, name: str) -> set[str]:
    with control.tenants.open(control.authenticator.operator(name)).reading() as view:
        return set(view.execute(select(schema.users.c.name)).scalars())


@pytest.fixture
def backed_up(folder: Path) -> Path:
    """A tenant with a backup of ana, and bo since."""
    control = opened(folder)
    control.tenants.create("acme")
    for user in ("ana", "bo"):
        with control.tenants.open(control.authenticator.operator("acme")).writing() as view:
            directory.ensure_user(view, user, 0.0)
        if user == "ana":
            back_up(control, "acme", folder / "b")
    control.close()
    return folder


def kill(folder: Path, point: str, how: str) -> None:
    ended = subprocess.run([sys.executable, "-c", KILLED, folder, point, how], check=False)
    assert ended.returncode == -9, point


def folders(folder: Path) -> list[str]:
    return sorted(
        str(path.relative_to(folder / "data"))
        for kind in ("tenants", "audit", "staging", "arriving")
        for path in (folder / "data" / kind).glob("*")
    )


@pytest.mark.slow
@pytest.mark.parametrize("point", ["data", "recorded", "arriving", "tenants"])
def test_a_killed_restore_leaves_nothing(backed_up: Path, point: str) -> None:
    before = folders(backed_up)
    kill(backed_up, point, "new")
    assert folders(backed_up) != before
    control = opened(backed_up)
    assert [record.name for record in control.tenants.all()] == ["acme"]
    control.tenants.sweep()
    assert folders(backed_up) == before
    restore_tenant(control, backed_up / "b", Wish(name="copy"))
    assert (users(control, "copy"), users(control, "acme")) == ({"ana"}, {"ana", "bo"})
    control.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("point", "done"), [("next key", False), ("copied", False), ("retired", True), ("switched", True)]
)
def test_a_killed_replacement_is_the_old_state_or_the_new(backed_up: Path, point: str, done: bool) -> None:
    control = opened(backed_up)
    control.tenants.set_status("acme", "suspended")
    kill(backed_up, point, "replace")
    control.tenants.set_status("acme", "active")
    assert users(control, "acme") == ({"ana"} if done else {"ana", "bo"})
    control.tenants.sweep()
    assert users(control, "acme") == ({"ana"} if done else {"ana", "bo"})
    handle = control.tenants.open(control.authenticator.operator("acme"))
    assert [path.name for path in handle.directory.glob("tenant*.sqlite")] == [
        "tenant.2.sqlite" if done else "tenant.sqlite"
    ]
    control.close()
