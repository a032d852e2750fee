"""kill -9 of the commands that change an audit log as evidence, before any of their steps; see `tests.faults.deed`.

After each: the log verifies, a checkpoint and an export of before still hold, nobody is accused, what was begun is done
or is told, a receipt is there only for what is gone, and the same command once more completes it.
"""

from __future__ import annotations

import itertools
import json
import os
import random
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
from sqlalchemy import func, select

from audit.checkpoints import parse, verify_note
from audit.signers import public_keys
from audit.subject_tables import subject_keys
from audit.tables import checkpoints, events, prunings, signers
from cache.stores.local import LocalStore
from service.control import Control
from tenancy.archive import Unlock, reading
from tests.faults import deed
from tests.faults.evidence import NAME, World, is_erased, is_sound, log_of, receipts, stored, told

pytestmark = pytest.mark.slow

KILLS = int(os.environ.get("TORTURE_KILLS", "20"))
EACH = max(2, KILLS // 8)
"""Kills of one command on one kind of storage."""

Again = Callable[[World, Control, deed.Done], None]


def _rotated(world: World, control: Control, again: deed.Done) -> None:
    """The change that was cut short happened as a whole or not at all, and the next one as ever."""
    assert again.code == 0, again.err
    keys = public_keys(log_of(control))
    assert len(keys) in {2, 3}
    assert [key.retired is None for key in keys] == [False] * (len(keys) - 1) + [True]
    with log_of(control).database.reading() as connection:
        changes = select(func.count()).where(events.c.action == "audit.key")
        assert connection.execute(changes).scalar_one() == len(keys) - 1
        notes = [parse(note) for note in connection.execute(select(checkpoints.c.note)).scalars()]
    for before, after in itertools.pairwise(keys):
        assert [note for note in notes if note.signed_by(before.public) and note.signed_by(after.public)]
    assert world.signer not in stored(world, control)


def _pruned(world: World, control: Control, again: deed.Done) -> None:
    assert again.code == 0, again.err
    log = log_of(control)
    with log.database.reading() as connection:
        gone = connection.execute(select(func.count()).where(func.length(events.c.payload) == 0)).scalar_one()
        ranges = connection.execute(select(prunings.c.first, prunings.c.last)).all()
    assert gone == sum(last - first + 1 for first, last in ranges) > 10
    assert "pistachio break of day" not in told(control)
    assert _gone(world, control) == [world.old]
    assert world.old not in stored(world, control)


def _erased(world: World, control: Control, again: deed.Done) -> None:
    done = receipts(control)
    if again.code:
        # The receipt was there before the command could say so.
        assert "strongroom user receipts" in again.err, again.err
    else:
        assert json.loads(again.out) in done
    assert len(done) == 1
    is_erased(world, control)


def _signed(world: World, control: Control, again: deed.Done) -> None:
    new = world.folder / "new"
    if again.code:
        assert "a new file" in again.err, again.err
    log = log_of(control)
    found = verify_note(new.read_text(), *(key.vkey for key in public_keys(log)))
    assert found.size > parse(world.kept).size


def _exported(world: World, control: Control, again: deed.Done) -> None:
    assert again.code == 0, again.err
    names = [path.name for path in (world.folder / "export").iterdir()]
    assert not [name for name in names if name.endswith(".partial")]


def _backed_up(world: World, control: Control, again: deed.Done) -> None:
    new = world.folder / "new"
    if again.code:
        assert "there already" in again.err, again.err
    with reading(new, "tenant", Unlock(control.tenants.archive_key)) as members:
        assert sorted(name for name, content in members if content.read()) == [
            "audit.sqlite", "manifest.json", "tenant.sqlite",
        ]  # fmt: skip
    control.tenants.sweep()
    # A name that never came to be is no folder, and empty.
    assert {path.stat().st_size for path in (world.folder / "data" / "staging").glob("*")} <= {0}
    assert not [path for path in (world.folder / "data" / "staging").glob("*") if path.suffix != ".new"]


COMMANDS: dict[str, tuple[tuple[str, ...], Again]] = {
    "rotate": (("audit", "rotate-key", "--tenant", "acme"), _rotated),
    "prune": (("audit", "prune"), _pruned),
    "erase": (("user", "erase", NAME, "--tenant", "acme", "--yes"), _erased),
    "checkpoint": (("audit", "checkpoint", "--tenant", "acme", "{new}"), _signed),
    "export": (("audit", "export", "--tenant", "acme", "--part-records", "3", "{export}"), _exported),
    "backup": (("backup", "--tenant", "acme", "{new}"), _backed_up),
}


def _gone(world: World, control: Control) -> list[bytes]:
    """What is destroyed by what the database says, and so is to be nowhere on the disk."""
    log = log_of(control)
    with log.subjects._database.reading() as connection:
        found = [] if world.wrapped in connection.execute(select(subject_keys.c.wrapped)).scalars() else [world.wrapped]
    with log.database.reading() as connection:
        if world.signer not in connection.execute(select(signers.c.wrapped)).scalars():
            found.append(world.signer)
        if not connection.execute(select(events.c.payload).where(events.c.seq == 3)).scalar_one():
            found.append(world.old)
    return found


def words(world: World, name: str) -> list[str]:
    places = {"new": str(world.folder / "new"), "export": str(world.folder / "export")}
    return [word.format(**places) for word in COMMANDS[name][0]]


def killed(origin: World, name: str, step: int, beside: bool, scratch: Path) -> None:
    """One kill, and all that has to hold after it; `beside` another process that has the databases open."""
    with origin.copy(scratch / f"{name}-{step}") as world, ExitStack() as stack:
        if beside:
            control = stack.enter_context(world.opened())
            stored(world, control), told(control)
            control.tenants.list_keys("acme")
            tenant = control.tenants.open(control.authenticator.operator("acme"))
            LocalStore().stats(tenant)
        assert world.do(*words(world, name), kill_at=step).code == -9
        if not beside:
            control = stack.enter_context(world.opened())
        is_sound(world, control)
        if receipts(control):
            is_erased(world, control)
        # As a server does it from time to time.
        for _, settled in control.logs.recover():
            assert not isinstance(settled, Exception), settled
        gone = _gone(world, control)
        held = stored(world, control)
        assert not [secret for secret in gone if secret in held]
        COMMANDS[name][1](world, control, world.do(*words(world, name)))
        is_sound(world, control, scratch)


@pytest.mark.timeout(max(300, 10 * KILLS))
@pytest.mark.parametrize(
    ("storage", "name"),
    # A PostgreSQL server has its own backups.
    [pair for pair in itertools.product(("embedded", "postgres"), COMMANDS) if pair != ("postgres", "backup")],
)
def test_killed_before_any_step(name: str, storage: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    origin: World = request.getfixturevalue(storage)
    seed = int(os.environ.get("TORTURE_SEED") or random.randrange(2**32))
    dice = random.Random(seed)
    with origin.copy(tmp_path / "whole") as world:
        whole = world.do(*words(world, name))
    assert whole.code == 0, whole.err
    steps = sorted(dice.sample(range(1, whole.steps + 1), min(EACH, whole.steps)))
    print(f"\n{storage} {name}: {len(steps)} kills at {steps} of {whole.steps} steps, seed {seed}")
    for step in steps:
        try:
            killed(origin, name, step, dice.random() < 0.5, tmp_path)
        except BaseException:
            print(f"step {step} of {whole.steps}, seed {seed}")
            raise
