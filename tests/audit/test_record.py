from __future__ import annotations

import json
import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from audit.record import (
    _DECIMAL,
    Actor,
    Bound,
    CacheUse,
    Content,
    Cost,
    Draft,
    Freshness,
    GenerationUse,
    GuardResult,
    Part,
    Policy,
    Request,
    Resource,
    Sealed,
    check,
    decode,
    encode,
    stamp,
)
from tenancy.errors import Corrupt, InvalidInput

WRITER = "w_" + "0" * 20
FULL = Draft(
    action="answer",
    phase="outcome",
    outcome="allowed",
    intent=1041,
    actor=Actor(kind="user", ref="u_1", credential="k1", method="jwt"),
    request=Request(id="r1", root="r0"),
    policy=Policy(domain="pd_1", acl_epoch=88, corpus_epoch=412, isolation="collection", template="t", config="c"),
    resources=(Resource(document="rég-1", version="sha256:1", chunk="c12", stage="cited"),),
    cache=CacheUse(
        status="hit",
        kind="semantic",
        entry="e1",
        origin_seq=977,
        origin_actor_same=False,
        similarity=0.941,
        guards=(GuardResult(name="slots", verdict="pass"),),
        bound=Bound(n=1200, k=1, upper=0.0046, state="certified"),
        freshness=Freshness(versions_checked=4, readable_checked=4),
    ),
    generation=GenerationUse(model="m", input=1234, cached_input=0, output=210, finish="stop"),
    content=Content(question=Sealed(commit="ab", ct="cd", key="k_1")),
    cost=Cost(hops=(("embed", 12), ("generate", 1444)), microunits=1830),
    detail={"pages": 3, "dry": False},
)


def test_every_field_of_decimals_is_rounded() -> None:
    parts: list[type[Part]] = [Part]
    for part in parts:
        parts += part.__subclasses__()
    found = {
        part.__name__: names
        for part in parts
        if (names := tuple(one.name for one in msgspec.structs.fields(part) if "float" in str(one.type)))
    }
    assert found == dict(_DECIMAL)


def test_the_bytes_of_an_event_are_fixed() -> None:
    small = Draft(
        action="answer", phase="intent", actor=Actor(kind="user", ref="u_é"), request=Request(id="r1"),
        cache=CacheUse(status="miss", similarity=0.1 + 0.2, score=-0.0),
    )  # fmt: skip
    assert encode(stamp(small, seq=7, now=1_764_430_000.5, log="t_1", writer=WRITER)).decode() == (
        '{"action":"answer","actor":{"kind":"user","ref":"u_é"},"cache":{"score":0.0,"similarity":0.3,"status":"miss"},'
        '"log":"t_1","phase":"intent","request":{"id":"r1"},"seq":7,"ts":"2025-11-29T15:26:40.500000Z","v":1,'
        f'"writer":"{WRITER}"}}'
    )


@given(
    seq=st.integers(0, 2**62),
    now=st.floats(0, 4e9),
    similarity=st.floats(-1, 1) | st.none(),
    document=st.text(st.characters(codec="utf-8")),
    withheld=st.integers(0, 10**9),
)
def test_decode_undoes_encode_and_the_bytes_are_canonical(
    seq: int, now: float, similarity: float | None, document: str, withheld: int
) -> None:
    draft = Draft(
        action="retrieve", phase="intent", actor=Actor(kind="anonymous"), request=Request(id="r"), withheld=withheld,
        resources=(Resource(document=document, stage="listed"),), cache=CacheUse(status="hit", similarity=similarity),
    )  # fmt: skip
    event = stamp(draft, seq=seq, now=now, log="t", writer=WRITER)
    data = encode(event)
    assert decode(data) == event
    assert encode(decode(data)) == data
    plain = json.loads(data)
    again = json.dumps(plain, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    # Python and msgspec differ only in how they escape control characters and print tiny exponents.
    assert json.loads(again) == plain
    assert list(plain) == sorted(plain)


def test_every_part_survives() -> None:
    event = stamp(FULL, seq=1042, now=1.0, log="t_1", writer=WRITER)
    assert decode(encode(event)) == event


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_a_number_that_json_cannot_carry_is_refused(number: float) -> None:
    with pytest.raises(InvalidInput):
        CacheUse(status="hit", similarity=number)


def test_text_that_is_not_unicode_is_refused() -> None:
    with pytest.raises(InvalidInput):
        check(Draft(action="a", phase="intent", actor=Actor(kind="anonymous"), request=Request(id="\ud800")))
    assert check(FULL) is FULL


@pytest.mark.parametrize(
    "change",
    [
        ('"phase":"outcome"', '"phase":"maybe"'),
        ('"seq":1042', '"seq":"1042"'),
        ('"v":1', '"v":1,"extra":2'),
        ('"ts":"1970', '"ts":"x970'),
        (f'"writer":"{WRITER}"', '"writer":"../../etc/passwd"'),
        ('"stage":"cited"', '"stage":"imagined"'),
        ("}", ""),
    ],
)
def test_bytes_that_no_event_has_are_corrupt(change: tuple[str, str]) -> None:
    data = encode(stamp(FULL, seq=1042, now=1.0, log="t_1", writer=WRITER)).decode()
    assert change[0] in data
    with pytest.raises(Corrupt):
        decode(data.replace(*change).encode())
