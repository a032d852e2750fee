from __future__ import annotations

from pathlib import Path

from tenancy.presence import FilePresence


def test_an_instance_is_alive_until_it_closes(tmp_path: Path) -> None:
    first, second = FilePresence(tmp_path), FilePresence(tmp_path)
    assert first.id != second.id
    assert second.alive(first.id)
    assert first.alive(second.id)
    assert second.alive(second.id)
    first.close()
    assert not second.alive(first.id)
    assert second.alive(second.id)
    second.close()


def test_an_instance_that_never_was_is_not_alive(tmp_path: Path) -> None:
    live = FilePresence(tmp_path)
    assert not live.alive("w_" + "0" * 20)
    live.close()


def test_who_ended_without_closing_is_named_until_it_is_forgotten(tmp_path: Path) -> None:
    living, here = FilePresence(tmp_path), FilePresence(tmp_path)
    dead = "w_" + "1" * 20
    (tmp_path / "live" / f"{dead}.lock").touch()
    assert here.ended() == [dead]
    assert not here.alive(dead)
    here.forget([dead])
    assert here.ended() == []
    assert here.alive(living.id)
    living.close()
    here.close()
