"""The published schema is that of the record, its examples are events, and it refuses what the record refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from audit.record import decode, encode, stamp
from audit.schema import EXAMPLES, FILE, event_schema, text_of
from tests.audit.secret_patterns import secrets_in
from tests.audit.test_record import FULL, WRITER

NAMES = sorted(EXAMPLES.glob("*.json"))
VALIDATOR = jsonschema.Draft202012Validator(event_schema(), format_checker=jsonschema.FormatChecker())


def full() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(encode(stamp(FULL, seq=1042, now=1_764_430_000.5, log="t_1", writer=WRITER)))
    return found


def test_the_file_is_made_from_the_record() -> None:
    assert FILE.read_text(encoding="utf-8") == text_of(event_schema()), "run: python -m audit.schema"
    jsonschema.Draft202012Validator.check_schema(event_schema())


def test_there_is_an_example_of_each_kind() -> None:
    assert {path.stem for path in NAMES} >= {
        "answer-intent", "answer-outcome", "answer-replayed", "semantic-hit", "vetoed", "refused", "document-put",
        "audit-report",
    }  # fmt: skip


@pytest.mark.parametrize("path", NAMES, ids=lambda path: path.stem)
def test_an_example_fits_the_schema_and_is_an_event(path: Path) -> None:
    plain = json.loads(path.read_text(encoding="utf-8"))
    VALIDATOR.validate(plain)
    canonical = json.dumps(plain, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    assert encode(decode(canonical)) == canonical
    assert not secrets_in(canonical)


@pytest.mark.parametrize(
    "change",
    [
        {"seq": -1},
        {"seq": "1"},
        {"v": 2},
        {"ts": "yesterday"},
        {"phase": "later"},
        {"outcome": "fine"},
        {"writer": "w_1"},
        {"action": "Answer"},
        {"surprise": 1},
        {"actor": {"kind": "robot"}},
        {"resources": [{"document": "d"}]},
        {"cache": {"status": "warm"}},
        {"detail": {"list": [1]}},
    ],
    ids=str,
)
def test_what_is_no_event_does_not_fit(change: dict[str, Any]) -> None:
    VALIDATOR.validate(full())
    with pytest.raises(jsonschema.ValidationError):
        VALIDATOR.validate(full() | change)


@pytest.mark.parametrize("name", ["v", "seq", "ts", "log", "writer", "action", "phase", "actor", "request"])
def test_what_every_event_has_is_required(name: str) -> None:
    with pytest.raises(jsonschema.ValidationError):
        VALIDATOR.validate({key: value for key, value in full().items() if key != name})
