from __future__ import annotations

import hashlib
import hmac

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from audit.log import AuditLog
from audit.logs import AuditLogs
from audit.subjects import SUBJECTS_FILE, Erased, SubjectKeys
from tenancy.control import Tenants
from tenancy.errors import Corrupt
from tests.support.people import Company


@pytest.fixture
def subjects(log: AuditLog) -> SubjectKeys:
    return log.subjects


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(text=st.text(st.characters(codec="utf-8")))
@pytest.mark.both_storages
def test_open_undoes_seal(subjects: SubjectKeys, text: str) -> None:
    sealed = subjects.seal("u_1", {"question": text})["question"]
    assert subjects.open("u_1", "question", sealed) == text


@pytest.mark.both_storages
def test_malformed_text_is_sealed_in_escaped_form(subjects: SubjectKeys) -> None:
    sealed = subjects.seal("u_1", {"question": "a\ud800b"})["question"]
    assert subjects.open("u_1", "question", sealed) == "a\\ud800b"


@pytest.mark.both_storages
def test_the_same_text_twice_shows_no_likeness(subjects: SubjectKeys) -> None:
    first, second = (subjects.seal("u_1", {"question": "salary of bo"})["question"] for _ in range(2))
    assert first.commit != second.commit
    assert first.ct != second.ct
    assert hashlib.sha256(b"salary of bo").hexdigest() not in (first.commit, second.commit)


@pytest.mark.both_storages
def test_a_sealed_text_opens_only_where_it_belongs(subjects: SubjectKeys) -> None:
    sealed = subjects.seal("u_1", {"question": "x"})["question"]
    other = subjects.seal("u_2", {"question": "x"})["question"]
    wrong = [
        ("u_1", "answer", sealed),
        ("u_2", "question", sealed),
        ("u_2", "question", msgspec.structs.replace(other, ct=sealed.ct)),
        ("u_1", "question", msgspec.structs.replace(sealed, commit="00" * 32)),
        ("u_1", "question", msgspec.structs.replace(sealed, ct="no base64!")),
        ("u_1", "question", msgspec.structs.replace(sealed, key="k_unknown")),
    ]
    for subject, field, changed in wrong:
        with pytest.raises(Corrupt):
            subjects.open(subject, field, changed)
    assert subjects.open("u_1", "question", sealed) == "x"


@pytest.mark.both_storages
def test_destroying_a_key_erases_one_subject_and_no_other(subjects: SubjectKeys) -> None:
    ana = subjects.seal("u_ana", {"question": "x"})["question"]
    bo = subjects.seal("u_bo", {"question": "y"})["question"]
    assert subjects.destroy("u_ana") == 1
    with pytest.raises(Erased):
        subjects.open("u_ana", "question", ana)
    assert subjects.open("u_bo", "question", bo) == "y"
    assert subjects.destroy("u_ana") == 0


@pytest.mark.both_storages
def test_what_is_sealed_after_erasure_has_a_new_key(subjects: SubjectKeys) -> None:
    before = subjects.seal("u_ana", {"question": "x"})["question"]
    subjects.destroy("u_ana")
    after = subjects.seal("u_ana", {"question": "z"})["question"]
    assert after.key != before.key
    assert subjects.open("u_ana", "question", after) == "z"


def test_the_destroyed_key_is_gone_from_the_files(log: AuditLog) -> None:
    sealed = log.subjects.seal("u_ana", {"question": "x"})["question"]
    with log.subjects._database.reading() as connection:
        wrapped = connection.exec_driver_sql("SELECT wrapped FROM subject_keys").scalar_one()
    assert len(wrapped) > 32
    log.subjects.destroy("u_ana")
    with log.subjects._database.reading() as connection:
        assert connection.exec_driver_sql("SELECT wrapped, id FROM subject_keys").one() == (None, sealed.key)
    assert (log.files.directory / f"{SUBJECTS_FILE}-wal").stat().st_size == 0


@pytest.mark.both_storages
def test_references_are_stable_in_a_log_and_differ_between_logs(
    logs: AuditLogs, acme: Company, globex: Company, tenants: Tenants
) -> None:
    here, there = logs.of(acme.principal("ana")), logs.of(globex.principal("ana"))
    assert here.subjects.ref("user-1") == here.subjects.ref("user-1")
    assert here.subjects.ref("user-1") != here.subjects.ref("user-2")
    assert here.subjects.ref("user-1") != there.subjects.ref("user-1")
    assert "user-1" not in here.subjects.ref("user-1")


@pytest.mark.both_storages
def test_a_commitment_can_be_proved_with_its_own_random_alone(subjects: SubjectKeys) -> None:
    """The commitment is HMAC-SHA256 over the length-prefixed field and text, keyed by 32 random bytes."""
    import base64

    from tenancy.keys import decrypt
    from tenancy.names import enc

    sealed = subjects.seal("u_1", {"question": "x"})["question"]
    key = subjects._live_key("u_1")[1]
    salt = decrypt(key, base64.b64decode(sealed.ct), enc("u_1", "question"))[:32]
    expected = hmac.new(salt, enc("question", b"x"), hashlib.sha256).hexdigest()
    assert expected == sealed.commit
