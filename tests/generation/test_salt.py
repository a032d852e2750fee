"""Salts: every part separates, and nothing can be glued into another part."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from generation.generator import ModelIdentity
from generation.salt import kv_salt, narrower
from tenancy.contract import KvSharing
from tenancy.errors import InvalidInput

KEY = bytes(32)
BASE: dict[str, Any] = {
    "tenant_id": "t1",
    "domain": "pd_1",
    "identity": ModelIdentity("m", "r1", "tok"),
    "template_revision": "p1",
    "kv_epoch": 3,
}

OTHERS: list[dict[str, Any]] = [
    {"tenant_id": "t2"},
    {"domain": "pd_2"},
    {"identity": ModelIdentity("m2", "r1", "tok")},
    {"identity": ModelIdentity("m", "r2", "tok")},
    {"identity": ModelIdentity("m", "r1", "tok", "adapter-1")},
    {"identity": ModelIdentity("m", "r1", "tok", "")},
    {"template_revision": "p2"},
    {"kv_epoch": 4},
    {"sharing": "user", "user_id": "u1"},
    {"sharing": "user", "user_id": "u2"},
]


def test_equal_parts_share() -> None:
    assert kv_salt(KEY, **BASE) == kv_salt(KEY, **BASE)
    assert len(kv_salt(KEY, **BASE)) == 64
    user = {**BASE, "sharing": "user", "user_id": "u1"}
    assert kv_salt(KEY, **user) == kv_salt(KEY, **user)


def test_each_part_separates() -> None:
    salts = {kv_salt(KEY, **{**BASE, **other}) for other in ({}, *OTHERS)}
    assert len(salts) == len(OTHERS) + 1
    assert kv_salt(bytes([1]) * 32, **BASE) not in salts


def test_sharing_with_nobody_is_fresh_every_time() -> None:
    assert len({kv_salt(KEY, **BASE, sharing="none") for _ in range(20)}) == 20


@given(st.text(min_size=1, max_size=4), st.text(min_size=1, max_size=4), st.text(min_size=1, max_size=4))
def test_parts_cannot_be_moved_across_their_border(a: str, b: str, c: str) -> None:
    assert kv_salt(KEY, **{**BASE, "tenant_id": a + b, "domain": c}) != kv_salt(
        KEY, **{**BASE, "tenant_id": a, "domain": b + c}
    )


@pytest.mark.parametrize("gap", [{"tenant_id": ""}, {"domain": ""}, {"sharing": "user"}])
def test_a_salt_for_nobody_is_refused(gap: dict[str, str]) -> None:
    with pytest.raises(InvalidInput):
        kv_salt(KEY, **{**BASE, **gap})


def test_a_contract_narrows_and_never_widens() -> None:
    order: tuple[KvSharing, ...] = ("none", "user", "domain")
    for ours in order:
        assert narrower(ours, None) == ours
        for theirs in order:
            assert narrower(ours, theirs) == order[min(order.index(ours), order.index(theirs))]
