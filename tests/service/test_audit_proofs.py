"""Checkpoints, keys and proofs through HTTP and the command line, checked with nothing but the public key."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from audit.checkpoints import verify_note
from audit.proofs import verify_consistency, verify_inclusion
from audit.rotation import is_rotation
from tenancy.identity import Role
from tests.service.house import House, problem
from tests.service.test_cli import Run, acme, cli, data

__all__ = ["acme", "cli"]


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    made = House(tmp_path)
    made.put("acme", "a.md", "Notice is three months.", allow=["tenant"])
    made.post("/v1/answers", made.key("acme", "ana"), {"query": "How long is the notice?"})
    yield made
    made.close()


def got(house: House, path: str) -> dict[str, Any]:
    response = house.get(path, house.key("acme", "paula", Role.AUDITOR))
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()
    return found


def path_of(found: dict[str, Any]) -> list[bytes]:
    return [bytes.fromhex(node) for node in found["path"]]


def test_an_auditor_keeps_a_checkpoint_and_is_shown_that_the_log_only_grew(house: House) -> None:
    old = got(house, "/v1/audit/checkpoint")
    (key,) = [one["key"] for one in old["keys"]]
    kept = verify_note(old["checkpoint"], key)
    assert (kept.size, kept.root.hex(), kept.origin) == (old["size"], old["root"], old["origin"])
    # The intent of the reading is in it.
    assert kept.size == len(house.events("acme")) - 1
    house.post("/v1/answers", house.key("acme", "ana"), {"query": "What is the notice?"})
    found = got(house, f"/v1/audit/proof/consistency?old={kept.size}")
    new = verify_note(found["checkpoint"], key)
    assert new.size == found["new"] > kept.size
    assert verify_consistency(kept.size, new.size, kept.root, new.root, path_of(found))


def test_a_record_is_shown_to_be_in_a_checkpoint(house: House) -> None:
    old = got(house, "/v1/audit/checkpoint")
    kept = verify_note(old["checkpoint"], old["keys"][0]["key"])
    for seq in range(kept.size):
        found = got(house, f"/v1/audit/proof/inclusion?seq={seq}&size={kept.size}")
        assert found["checkpoint"] == old["checkpoint"]
        assert verify_inclusion(bytes.fromhex(found["leaf"]), seq, kept.size, path_of(found), kept.root)
    newest = got(house, f"/v1/audit/proof/inclusion?seq={kept.size}")
    signed = verify_note(newest["checkpoint"], old["keys"][0]["key"])
    leaf = bytes.fromhex(newest["leaf"])
    assert verify_inclusion(leaf, kept.size, newest["size"], path_of(newest), signed.root)
    unsigned = got(house, "/v1/audit/proof/inclusion?seq=0&size=2")
    assert unsigned["checkpoint"] is None
    root = bytes.fromhex(unsigned["root"])
    assert verify_inclusion(bytes.fromhex(unsigned["leaf"]), 0, 2, path_of(unsigned), root)


@pytest.mark.parametrize("path", ["checkpoint", "proof/inclusion?seq=0", "proof/consistency?old=1"])
def test_only_an_auditor_reads_them_and_each_reading_is_on_record(house: House, path: str) -> None:
    for role in set(Role) - {Role.AUDITOR}:
        problem(house.get(f"/v1/audit/{path}", house.key("acme", role.value, role)), 403, "forbidden")
    before = len(house.events("acme"))
    got(house, f"/v1/audit/{path}")
    events = house.events("acme")[before:]
    assert [(event["phase"], event.get("outcome")) for event in events] == [("intent", None), ("outcome", "allowed")]
    assert events[0]["action"] in {"audit.checkpoint", "audit.prove"}


def test_logs_of_others_have_other_keys(house: House) -> None:
    house.put("globex", "a.md", "Notice is three months.", allow=["tenant"])
    theirs = house.get("/v1/audit/checkpoint", house.key("globex", "otto", Role.AUDITOR)).json()
    ours = got(house, "/v1/audit/checkpoint")
    assert theirs["origin"] != ours["origin"]
    assert theirs["keys"][0]["key"] != ours["keys"][0]["key"]


@pytest.mark.parametrize(
    "query",
    [
        "inclusion?seq=9999", "inclusion?seq=5&size=5", "inclusion?seq=0&size=0", "inclusion?seq=0&size=9999",
        "inclusion?seq=-1", "inclusion?seq=x", "inclusion?seq=" + "9" * 30, "inclusion?seq=0&size=" + "9" * 30,
        "inclusion", "consistency", "consistency?old=-1", "consistency?old=9999", "consistency?old=2&new=1",
        "consistency?old=1&new=9999",
    ],
)  # fmt: skip
def test_what_cannot_be_proved_is_refused(house: House, query: str) -> None:
    key = house.key("acme", "paula", Role.AUDITOR)
    problem(house.get(f"/v1/audit/proof/{query}", key), 422, "invalid-input")


def test_unknown_parameters_are_refused(house: House) -> None:
    key = house.key("acme", "paula", Role.AUDITOR)
    for path in ("checkpoint?size=1", "proof/inclusion?seq=0&old=1", "proof/consistency?old=1&seq=1"):
        problem(house.get(f"/v1/audit/{path}", key), 400, "unknown-parameter")


def test_a_damaged_tree_proves_nothing(house: House) -> None:
    from sqlalchemy import update

    from audit.tables import events

    control = house.services.control
    log = control.logs.of(control.authenticator.operator("acme"))
    size = got(house, "/v1/audit/checkpoint")["size"]
    with log.database.writing() as connection:
        connection.execute(update(events).where(events.c.seq == 1).values(leaf=bytes(32)))
    key = house.key("acme", "paula", Role.AUDITOR)
    for path in (f"proof/inclusion?seq=0&size={size}", f"proof/consistency?old=1&new={size}", "checkpoint"):
        assert house.get(f"/v1/audit/{path}", key).status_code == 500


def test_the_command_shows_keys_and_checkpoints(acme: Run, tmp_path: Path) -> None:
    (key,) = data(acme("audit", "key", "--tenant", "acme", "--json"))
    assert key["retired"] is None
    note = acme("audit", "checkpoint", "--tenant", "acme")[1]
    assert verify_note(note, key["key"]).size > 0
    file = tmp_path / "checkpoint.txt"
    assert acme("audit", "checkpoint", str(file), "--tenant", "acme")[0] == 0
    assert verify_note(file.read_text(), key["key"]).size > verify_note(note, key["key"]).size
    code, _, err = acme("audit", "checkpoint", str(file), "--tenant", "acme")
    assert code == 2
    assert f"{file}: the checkpoint cannot be written: File exists (name a new file" in err
    (system,) = data(acme("audit", "key", "--system", "--json"))
    assert system["key"] != key["key"]
    assert acme("audit", "key")[0] == 2


def test_the_command_proves(acme: Run, tmp_path: Path) -> None:
    (key,) = data(acme("audit", "key", "--tenant", "acme", "--json"))
    file = tmp_path / "checkpoint.txt"
    acme("audit", "checkpoint", str(file), "--tenant", "acme")
    kept = verify_note(file.read_text(), key["key"])
    found = data(acme("audit", "prove", "--tenant", "acme", "--seq", "1", "--size", str(kept.size), "--json"))
    assert verify_inclusion(bytes.fromhex(found["leaf"]), 1, kept.size, path_of(found), kept.root)
    found = data(acme("audit", "prove", "--tenant", "acme", "--consistency", str(file), "--json"))
    assert found["verdict"] == "grew"
    new = verify_note(found["checkpoint"], key["key"])
    assert verify_consistency(kept.size, new.size, kept.root, new.root, path_of(found))
    found = data(acme("audit", "prove", "--tenant", "acme", "--consistency", "1", "--size", "3", "--json"))
    assert (found["old"], found["new"]) == (1, 3)
    for words in (("--seq", "1", "--size", "9" * 30), ("--seq", "9" * 30), ("--consistency", "9" * 30)):
        assert acme("audit", "prove", "--tenant", "acme", *words)[0] == 2
    assert (
        "no record 7 is in a log of 3 records ("
        in acme("audit", "prove", "--tenant", "acme", "--seq", "7", "--size", "3")[2]
    )
    assert acme("audit", "prove", "--tenant", "acme")[0] == 2
    assert acme("audit", "prove", "--tenant", "acme", "--seq", "1", "--consistency", "1")[0] == 2
    for name, text in (("other.txt", file.read_text().replace(f"\n{kept.size}\n", "\n1\n")), ("no.txt", "no")):
        (tmp_path / name).write_text(text)
        assert acme("audit", "prove", "--tenant", "acme", "--consistency", str(tmp_path / name))[0] == 2
    assert acme("audit", "prove", "--tenant", "acme", "--consistency", str(tmp_path / "nowhere"))[0] == 2


def test_the_command_tells_a_log_that_was_put_back(acme: Run, folder: Path, tmp_path: Path) -> None:
    """The data directory of before, in the place of what was signed since: only the kept checkpoint tells."""
    import shutil

    acme("audit", "key", "--tenant", "acme")
    (log,) = [path.parent for path in (folder / "data").rglob("audit.sqlite") if "system" not in str(path)]
    copy = tmp_path / "copy"
    shutil.copytree(log, copy)
    for question in ("one", "two", "three"):
        acme("ask", "--tenant", "acme", "--user", "ana", question)
    file = tmp_path / "checkpoint.txt"
    acme("audit", "checkpoint", str(file), "--tenant", "acme")
    shutil.rmtree(log)
    shutil.copytree(copy, log)
    assert data(acme("audit", "verify", "--tenant", "acme", "--json"))[0]["verdict"] == "ok"
    code, out, _ = acme("audit", "verify", "--tenant", "acme", "--checkpoint", str(file), "--json")
    assert (code, json.loads(out)[0]["verdict"]) == (1, "truncated")
    assert acme("audit", "verify", "--checkpoint", str(file))[0] == 2
    code, out, _ = acme("audit", "prove", "--tenant", "acme", "--consistency", str(file), "--json")
    assert (code, json.loads(out)["verdict"]) == (1, "altered")
    for question in ("one", "two", "three", "four", "five"):
        acme("ask", "--tenant", "acme", "--user", "ana", question)
    code, out, _ = acme("audit", "prove", "--tenant", "acme", "--consistency", str(file), "--json")
    assert (code, json.loads(out)["verdict"]) == (1, "altered")
    code, out, _ = acme("audit", "verify", "--tenant", "acme", "--checkpoint", str(file), "--json")
    assert (code, json.loads(out)[0]["verdict"]) == (1, "edited")


def test_a_key_is_rotated_on_record(acme: Run) -> None:
    (first,) = data(acme("audit", "key", "--tenant", "acme", "--json"))
    old, new = data(acme("audit", "rotate-key", "--tenant", "acme", "--json"))
    assert (old["id"], old["key"], new["retired"]) == (first["id"], first["key"], None)
    assert old["retired"] is not None
    events = data(acme("audit", "query", "--tenant", "acme", "--action", "audit.key", "--json"))["events"]
    assert [event["detail"]["new"] for event in events] == [new["id"]]
    assert is_rotation(events[0]["log"], events[0]["detail"])
    assert events[0]["actor"]["kind"] == "operator"
    assert verify_note(acme("audit", "checkpoint", "--tenant", "acme")[1], new["key"])
    assert data(acme("audit", "verify", "--tenant", "acme", "--json"))[0]["verdict"] == "ok"
