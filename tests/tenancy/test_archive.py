"""Archives: any change, cut, swap or wrong key is an error, and nothing appears unless it is complete."""

from __future__ import annotations

from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from tenancy import archive
from tenancy.archive import CHUNK, Unlock
from tenancy.errors import AlreadyExists, Corrupt, InvalidInput, StrongroomError

ROOT = bytes(range(32))
MEMBERS = {"one": b"", "two": b"secret text", "three": bytes(range(256)) * 8192}


def written(path: Path, recovery: X25519PrivateKey | None = None, members: dict[str, bytes] | None = None) -> Path:
    public = None if recovery is None else recovery.public_key()
    with archive.writing(path, "tenant", ROOT, public) as tar:
        for name, content in (members or MEMBERS).items():
            archive.add(tar, name, content)
    return path


def read(path: Path, unlock: Unlock | None = None) -> dict[str, bytes]:
    with archive.reading(path, "tenant", unlock or Unlock(ROOT)) as members:
        return {name: content.read() for name, content in members}


def test_what_went_in_comes_out_and_only_with_a_key(tmp_path: Path) -> None:
    key = X25519PrivateKey.generate()
    path = written(tmp_path / "a", key)
    assert path.stat().st_size > 2 * CHUNK
    assert read(path) == MEMBERS
    assert read(path, Unlock(bytes(32), key)) == MEMBERS
    assert b"secret" not in path.read_bytes()
    assert path.stat().st_mode & 0o777 == 0o600
    for unlock in (Unlock(bytes(32)), Unlock(bytes(32), X25519PrivateKey.generate())):
        with pytest.raises(InvalidInput):
            read(path, unlock)
    with pytest.raises(InvalidInput, match="--for"):
        read(written(tmp_path / "b"), Unlock(bytes(32), key))
    with pytest.raises(InvalidInput, match="holds a tenant"), archive.reading(path, "ledger", Unlock(ROOT)):
        pass


def test_each_changed_byte_and_each_cut_is_seen(tmp_path: Path) -> None:
    path = written(tmp_path / "a", members={"two": b"secret text"})
    whole = path.read_bytes()
    for place in [*range(200), *range(len(whole) - 200, len(whole))]:
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(StrongroomError):
            read(path)
    for length in (0, 10, 100, len(whole) - 1, len(whole) - 16):
        path.write_bytes(whole[:length])
        with pytest.raises(StrongroomError):
            read(path)


def test_chunks_cannot_be_left_out_moved_or_appended(tmp_path: Path) -> None:
    path = written(tmp_path / "a", members={"big": bytes(3 * CHUNK)})
    whole = path.read_bytes()
    first = whole.index(b"}") + 1
    chunks = [whole[place : place + CHUNK + 16] for place in range(first, len(whole), CHUNK + 16)]
    assert len(chunks) == 4
    for order in ([0, 1, 2], [0, 2, 1, 3], [1, 2, 3], [0, 1, 2, 3, 3], [3]):
        path.write_bytes(whole[:first] + b"".join(chunks[number] for number in order))
        with pytest.raises(Corrupt):
            read(path)


def test_nothing_is_there_unless_it_is_complete_and_nothing_is_overwritten(tmp_path: Path) -> None:
    def dies() -> None:
        with archive.writing(tmp_path / "a", "tenant", ROOT) as tar:
            archive.add(tar, "one", b"x")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        dies()
    assert list(tmp_path.iterdir()) == []
    written(tmp_path / "a")
    with pytest.raises(AlreadyExists):
        written(tmp_path / "a")
    assert read(tmp_path / "a") == MEMBERS


def test_a_recovery_key_is_a_pair_of_files(tmp_path: Path) -> None:
    public = archive.create_recovery_key(tmp_path / "desk.pem")
    assert archive.read_public_key(public) == archive.read_private_key(tmp_path / "desk.pem").public_key()
    assert (tmp_path / "desk.pem").stat().st_mode & 0o777 == 0o600
    with pytest.raises(AlreadyExists):
        archive.create_recovery_key(tmp_path / "desk.pem")
    for wrong in (tmp_path / "desk.pem", tmp_path / "none"):
        with pytest.raises(InvalidInput):
            archive.read_public_key(wrong)
    with pytest.raises(InvalidInput, match="private"):
        archive.read_private_key(public)
