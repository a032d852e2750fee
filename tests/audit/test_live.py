from __future__ import annotations

from pathlib import Path

from audit.live import LiveWriter


def test_a_writer_is_alive_until_it_closes(tmp_path: Path) -> None:
    first, second = LiveWriter(tmp_path), LiveWriter(tmp_path)
    assert first.id != second.id
    assert second.alive(first.id)
    assert first.alive(second.id)
    assert second.alive(second.id)
    first.close()
    assert not second.alive(first.id)
    assert second.alive(second.id)
    second.close()


def test_a_writer_that_never_was_is_not_alive(tmp_path: Path) -> None:
    live = LiveWriter(tmp_path)
    assert not live.alive("w_" + "0" * 20)
    live.close()


def test_files_of_dead_writers_are_swept_and_others_stay(tmp_path: Path) -> None:
    living = LiveWriter(tmp_path)
    dead = tmp_path / "live" / ("w_" + "1" * 20 + ".lock")
    dead.touch()
    newcomer = LiveWriter(tmp_path)
    assert not dead.exists()
    assert {path.stem for path in (tmp_path / "live").iterdir()} == {living.id, newcomer.id}
    living.close()
    newcomer.close()
