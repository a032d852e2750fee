"""Two processes that change one audit log at the same moment: each does its part, or says that the other one did."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from sqlalchemy import select

from audit.signers import public_keys
from audit.tables import prunings
from tests.faults import deed
from tests.faults.deed import Deed
from tests.faults.evidence import NAME, World, is_erased, is_sound, log_of, receipts

pytestmark = pytest.mark.slow

ROUNDS = max(1, int(os.environ.get("TORTURE_KILLS", "20")) // 20)
PRUNE = ("audit", "prune")
ROTATE = ("audit", "rotate-key", "--tenant", "acme")
ERASE = ("user", "erase", NAME, "--tenant", "acme", "--yes")
SIGN = ("audit", "checkpoint", "--tenant", "acme")
TOGETHER = {
    "prunings": (PRUNE, PRUNE),
    "rotations": (ROTATE, ROTATE),
    "erasures": (ERASE, ERASE),
    "all": (PRUNE, ROTATE, ERASE, SIGN),
}


@pytest.mark.timeout(max(300, 60 * ROUNDS))
@pytest.mark.parametrize("name", TOGETHER)
@pytest.mark.parametrize("storage", ["embedded", "postgres"])
def test_at_the_same_moment(name: str, storage: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    origin: World = request.getfixturevalue(storage)
    for number in range(ROUNDS):
        with origin.copy(tmp_path / str(number)) as world:
            _together(world, TOGETHER[name], tmp_path / f"said-{number}")


def _together(world: World, commands: tuple[tuple[str, ...], ...], said: Path) -> None:
    deeds = []
    for place, words in enumerate(commands):
        folder = said / str(place)
        folder.mkdir(parents=True)
        deeds.append(Deed(folder, world.environment, words, deed.NEVER))
    done = [one.wait() for one in deeds]
    erasing = [one for one, words in zip(done, commands, strict=True) if words == ERASE]
    assert [one.err for one in done if one.code and one not in erasing] == []
    with world.opened() as control:
        log = log_of(control)
        assert len(public_keys(log)) == 1 + commands.count(ROTATE)
        with log.database.reading() as connection:
            ranges = connection.execute(select(prunings.c.first, prunings.c.last).order_by(prunings.c.first)).all()
        assert len({number for first, last in ranges for number in range(first, last + 1)}) == sum(
            last - first + 1 for first, last in ranges
        )
        assert bool(ranges) == (PRUNE in commands)
        found = receipts(control)
        if erasing:
            # The other one finds nobody of this name any more.
            assert {one.code for one in erasing} <= {0, 1}
            assert 1 <= len(found) <= len(erasing)
            assert [json.loads(one.out) in found for one in erasing if not one.code].count(False) == 0
            assert all("no such user" in one.err for one in erasing if one.code), erasing
            is_erased(world, control)
        is_sound(world, control, said)
