from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from audit.merkle import Frontier, leaf_hash
from tenancy.errors import Corrupt

# The eight leaves and the roots of their prefixes that the Certificate Transparency reference code is tested with.
LEAVES = [bytes.fromhex(leaf) for leaf in (
    "", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f"
)]  # fmt: skip
ROOTS = [
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
]


def naive_root(records: list[bytes]) -> bytes:
    """RFC 6962, section 2.1, word for word."""
    if not records:
        return hashlib.sha256(b"").digest()
    if len(records) == 1:
        return hashlib.sha256(b"\x00" + records[0]).digest()
    split = 1
    while split * 2 < len(records):
        split *= 2
    return hashlib.sha256(b"\x01" + naive_root(records[:split]) + naive_root(records[split:])).digest()


def frontier_of(records: list[bytes]) -> Frontier:
    frontier = Frontier()
    frontier.extend(leaf_hash(record) for record in records)
    return frontier


@pytest.mark.parametrize("size", range(9))
def test_known_roots(size: int) -> None:
    assert frontier_of(LEAVES[:size]).root().hex() == ROOTS[size]


@given(st.lists(st.binary(max_size=8), max_size=70))
def test_root_equals_the_recursive_definition(records: list[bytes]) -> None:
    assert frontier_of(records).root() == naive_root(records)


@given(st.lists(st.binary(max_size=4), max_size=40), st.lists(st.binary(max_size=4), max_size=40))
def test_a_stored_frontier_goes_on_where_it_stopped(first: list[bytes], second: list[bytes]) -> None:
    stored = frontier_of(first)
    again = Frontier.from_bytes(stored.size, stored.to_bytes())
    again.extend(leaf_hash(record) for record in second)
    assert (again.size, again.root()) == (len(first) + len(second), naive_root(first + second))


@given(st.lists(st.binary(max_size=4), min_size=1, max_size=40), st.data())
def test_any_changed_record_changes_the_root(records: list[bytes], data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(records) - 1))
    changed = [*records[:at], records[at] + b"!", *records[at + 1 :]]
    assert frontier_of(changed).root() != frontier_of(records).root()


def test_a_record_that_looks_like_a_node_is_not_one() -> None:
    left, right = leaf_hash(b"a"), leaf_hash(b"b")
    assert frontier_of([left + right]).root() != frontier_of([b"a", b"b"]).root()


@pytest.mark.parametrize(("size", "data"), [(1, b""), (2, bytes(64)), (3, bytes(63)), (0, bytes(32)), (-1, b"")])
def test_a_frontier_of_another_size_is_refused(size: int, data: bytes) -> None:
    with pytest.raises(Corrupt):
        Frontier.from_bytes(size, data)
