"""Who reads a file by its mode: against the kernel itself, and never more than it lets."""

from __future__ import annotations

import itertools
import os
import subprocess
from pathlib import Path

import pytest

from indexing.posix_rules import PosixRules
from tenancy.errors import InvalidInput

ANA, BO, CY = 60_001, 60_002, 60_003
HR, IT = 61_001, 61_002
PEOPLE = {ANA: [HR], BO: [HR, IT], CY: [IT]}
MAP = f"""
everyone = ["tenant"]
[users]
{ANA} = ["user:ana"]
{BO} = ["user:bo"]
{CY} = ["user:cy"]
[groups]
{HR} = ["group:hr"]
{IT} = ["group:it"]
"""
HELD = {
    ANA: {"tenant", "user:ana", "group:hr"},
    BO: {"tenant", "user:bo", "group:hr", "group:it"},
    CY: {"tenant", "user:cy", "group:it"},
}
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files to others")


@pytest.fixture
def rules(tmp_path: Path) -> PosixRules:
    (tmp_path / "map.toml").write_text(MAP)
    return PosixRules(tmp_path / "map.toml")


def a_file(root: Path, folder_mode: int, file_mode: int, folder: tuple[int, int], file: tuple[int, int]) -> str:
    (root / "sub").mkdir(parents=True, exist_ok=True)
    path = root / "sub" / "a.txt"
    path.write_text("x")
    os.chown(path, *file)
    os.chmod(path, file_mode)
    os.chown(root / "sub", *folder)
    os.chmod(root / "sub", folder_mode)
    os.chmod(root, 0o755)
    return "sub/a.txt"


def test_each_class_that_reads_is_let_in(rules: PosixRules, tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("x")
    os.chmod(tmp_path, 0o755)
    own, group = os.geteuid(), os.getegid()
    (tmp_path / "own.toml").write_text(
        f'everyone = ["tenant"]\n[users]\n{own} = ["user:me"]\n[groups]\n{group} = ["group:us"]\n'
    )
    mine = PosixRules(tmp_path / "own.toml")
    root = {"user:me"} if own else set()
    for mode, wanted in {0o400: root, 0o440: root | {"group:us"}, 0o444: root | {"group:us", "tenant"}}.items():
        path.chmod(mode)
        assert mine.decide(tmp_path, path).access.allow == wanted
        assert mine.decide(tmp_path, path).access.deny == frozenset()


@AS_ROOT
def test_nobody_is_let_in_whom_the_kernel_keeps_out(
    rules: PosixRules, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """All modes that matter, of a file and its folder, with owners and groups that differ and that are the same."""
    base = Path("/dev/shm") / f"posix-{os.getpid()}"
    modes = [0o000, 0o400, 0o040, 0o004, 0o440, 0o404, 0o044, 0o444]
    passes = [0o700, 0o710, 0o750, 0o701, 0o711, 0o755, 0o670, 0o607, 0o077]
    owners = [((ANA, HR), (ANA, HR)), ((CY, IT), (ANA, HR)), ((0, HR), (BO, HR)), ((0, HR), (ANA, IT))]
    cases = []
    try:
        for number, (mode, folder_mode, (folder, file)) in enumerate(itertools.product(modes, passes, owners)):
            root = base / str(number)
            cases.append((root, a_file(root, folder_mode, mode, folder, file)))
        os.chmod(base, 0o755)
        reading = {user: _read_by(user, [root / path for root, path in cases]) for user in PEOPLE}
        plain = 0
        for number, (root, path) in enumerate(cases):
            allow = rules.decide(root, root / path).access.allow
            status = (root / path).parent.stat().st_mode & 0o777, (root / path).stat().st_mode & 0o777
            for user, held in HELD.items():
                let_in = bool(allow & held)
                assert reading[user][number] or not let_in, (root, user, allow)
                # Modes as people set them are told to the last reader.
                if status in {(0o755, 0o400), (0o755, 0o440), (0o755, 0o444)}:
                    plain += 1
                    assert let_in == reading[user][number], (root, user, allow)
        assert plain == 3 * len(owners) * len(HELD)
    finally:
        subprocess.run(["rm", "-rf", str(base)], check=True)


def _read_by(user: int, paths: list[Path]) -> list[bool]:
    """Which of `paths` a process of `user` can open."""
    done = subprocess.run(
        ["/bin/sh", "-c", 'while read -r path; do if (true < "$path") 2>/dev/null; then echo 1; else echo 0; fi; done'],
        input="".join(f"{path}\n" for path in paths),
        capture_output=True,
        text=True,
        check=True,
        user=user,
        group=PEOPLE[user][0],
        extra_groups=PEOPLE[user],
        cwd="/",
    )
    return [line == "1" for line in done.stdout.split()]


@AS_ROOT
def test_a_folder_of_one_group_gives_its_files_to_the_group(rules: PosixRules, tmp_path: Path) -> None:
    path = a_file(tmp_path / "root", 0o750, 0o640, (0, HR), (ANA, HR))
    assert rules.decide(tmp_path / "root", tmp_path / "root" / path).access.allow == {"group:hr"}


def test_an_account_that_the_map_does_not_name_stands_for_nobody(tmp_path: Path) -> None:
    (tmp_path / "map.toml").write_text("")
    (tmp_path / "a.txt").write_text("x")
    (tmp_path / "a.txt").chmod(0o444)
    assert PosixRules(tmp_path / "map.toml").decide(tmp_path, tmp_path / "a.txt").access.allow == frozenset()


def test_a_file_with_an_extended_list_is_given_to_nobody(
    rules: PosixRules, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.txt").write_text("x")
    monkeypatch.setattr(os, "listxattr", lambda *_args, **_named: ["system.posix_acl_access"])
    with pytest.raises(InvalidInput, match="extended") as found:
        rules.decide(tmp_path, tmp_path / "a.txt")
    assert (found.value.item, bool(found.value.remedy)) == ("a.txt", True)


@pytest.mark.parametrize(
    "text",
    ["everyone = 'tenant'", "[owners]\nana = []", "[users]\nana = ['robot:ana']", "everyone = [", "[users]\nana = 'x'"],
)
def test_a_broken_map_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "map.toml").write_text(text)
    with pytest.raises(InvalidInput) as found:
        PosixRules(tmp_path / "map.toml")
    assert (found.value.item or "").startswith("map.toml")


def test_an_absent_map_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="cannot be read"):
        PosixRules(tmp_path / "none.toml")
