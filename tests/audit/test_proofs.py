from __future__ import annotations

import hashlib
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pymerkle import InmemoryTree
from pymerkle import verify_consistency as their_consistency
from pymerkle import verify_inclusion as their_inclusion
from sqlalchemy import create_engine, delete, insert, update
from sqlalchemy.engine import Connection, Engine

from audit.merkle import EMPTY_ROOT, Frontier, leaf_hash
from audit.proofs import Tree, verify_consistency, verify_inclusion
from audit.tables import events, head, metadata, nodes
from tenancy.errors import Corrupt, InvalidInput

SIZE = 1_300
LEAVES = [leaf_hash(str(number).encode()) for number in range(SIZE)]

sizes = st.integers(0, SIZE)


@cache
def engine() -> Engine:
    """A log's tables, filled as the log fills them, without its records' bytes."""
    made = create_engine("sqlite://")
    metadata.create_all(made)
    with made.begin() as connection:
        frontier, prev, rows, subtrees = Frontier(), b"", [], []
        for seq, leaf in enumerate(LEAVES):
            rows.append(
                {
                    "seq": seq,
                    "payload": b"",
                    "leaf": leaf,
                    "prev": prev,
                    "ts": 0.0,
                    "action": "",
                    "phase": "",
                    "request": "",
                }
            )
            prev = leaf
            subtrees += [{"level": node.level, "at": node.at, "hash": node.hash} for node in frontier.append(leaf)]
        connection.execute(insert(events), rows)
        connection.execute(insert(nodes), subtrees)
        values = {"one": 1, "size": SIZE, "frontier": frontier.to_bytes(), "root": frontier.root(), "last_leaf": prev}
        connection.execute(insert(head).values(values))
    return made


@cache
def naive_root(first: int, end: int) -> bytes:
    """RFC 6962, section 2.1, word for word, over the leaf hashes."""
    if first == end:
        return hashlib.sha256(b"").digest()
    if end - first == 1:
        return LEAVES[first]
    split = 1
    while split * 2 < end - first:
        split *= 2
    left, right = naive_root(first, first + split), naive_root(first + split, end)
    return hashlib.sha256(b"\x01" + left + right).digest()


@settings(deadline=None)
@given(sizes)
def test_the_root_of_every_past_tree_is_that_of_then(size: int) -> None:
    with engine().connect() as connection:
        assert Tree(connection).root(size) == naive_root(0, size)


@settings(deadline=None)
@given(st.data())
def test_every_record_is_shown_to_be_in_every_tree_that_holds_it(data: st.DataObject) -> None:
    size = data.draw(st.integers(1, SIZE))
    seq = data.draw(st.integers(0, size - 1))
    with engine().connect() as connection:
        path = Tree(connection).inclusion(seq, size)
    root = naive_root(0, size)
    assert verify_inclusion(LEAVES[seq], seq, size, path, root)
    assert not verify_inclusion(leaf_hash(b"another"), seq, size, path, root)
    assert not verify_inclusion(LEAVES[seq], seq, size, path, naive_root(0, size - 1))
    assert not verify_inclusion(LEAVES[seq], seq, size, (*path, bytes(32)), root)
    if path:
        assert not verify_inclusion(LEAVES[seq], seq, size, path[:-1], root)
        at = data.draw(st.integers(0, len(path) - 1))
        assert not verify_inclusion(LEAVES[seq], seq, size, (*path[:at], bytes(32), *path[at + 1 :]), root)
    other = data.draw(st.integers(0, size - 1).filter(lambda number: number != seq)) if size > 1 else size
    assert not verify_inclusion(LEAVES[seq], other, size, path, root)


@settings(deadline=None)
@given(st.data())
def test_every_tree_is_shown_to_begin_with_every_earlier_one(data: st.DataObject) -> None:
    new = data.draw(sizes)
    old = data.draw(st.integers(0, new))
    with engine().connect() as connection:
        path = Tree(connection).consistency(old, new)
        assert Tree(connection).extends(old, naive_root(0, old), new, naive_root(0, new))
        assert not Tree(connection).extends(old, leaf_hash(b"another"), new, naive_root(0, new))
    before, after = naive_root(0, old), naive_root(0, new)
    assert verify_consistency(old, new, before, after, path)
    assert not verify_consistency(old, new, leaf_hash(b"another"), after, path)
    assert not verify_consistency(old, new, before, after, (*path, bytes(32)))
    if 0 < old < new:
        assert not verify_consistency(old, new, before, leaf_hash(b"another"), path)
        assert not verify_consistency(old, new, before, after, path[:-1])
        at = data.draw(st.integers(0, len(path) - 1))
        assert not verify_consistency(old, new, before, after, (*path[:at], bytes(32), *path[at + 1 :]))
    if old < new:
        assert not verify_consistency(new, old, after, before, path)


def test_the_empty_tree_and_the_tree_itself_need_no_path() -> None:
    root = naive_root(0, 5)
    assert verify_consistency(0, 5, EMPTY_ROOT, root, ())
    assert verify_consistency(5, 5, root, root, ())
    assert not verify_consistency(0, 5, root, root, ())
    assert not verify_consistency(5, 5, root, EMPTY_ROOT, ())
    assert not verify_consistency(-1, 5, EMPTY_ROOT, root, ())
    assert not verify_inclusion(LEAVES[0], -1, 5, (), root)


@pytest.mark.parametrize(("seq", "size"), [(5, 5), (-1, 5), (0, 0), (0, SIZE + 1), (SIZE, SIZE)])
def test_what_is_not_in_the_tree_has_no_path(seq: int, size: int) -> None:
    with engine().connect() as connection, pytest.raises(InvalidInput):
        Tree(connection).inclusion(seq, size)


@pytest.mark.parametrize(("old", "new"), [(6, 5), (-1, 5), (5, SIZE + 1)])
def test_a_tree_extends_no_larger_one(old: int, new: int) -> None:
    with engine().connect() as connection, pytest.raises(InvalidInput):
        Tree(connection).consistency(old, new)


@cache
def independent() -> InmemoryTree:
    """The same records in a tree that is not ours (pymerkle); it counts them from 1."""
    tree = InmemoryTree(algorithm="sha256")
    for number in range(SIZE):
        tree.append(str(number).encode())
    return tree


@settings(deadline=None)
@given(st.data())
def test_an_independent_implementation_gives_the_same_paths(data: st.DataObject) -> None:
    size = data.draw(st.integers(1, SIZE))
    seq, old = data.draw(st.integers(0, size - 1)), data.draw(st.integers(1, size))
    other = independent()
    with engine().connect() as connection:
        tree = Tree(connection)
        path, between, root = tree.inclusion(seq, size), tree.consistency(old, size), tree.root(size)
    assert root == other.get_state(size)
    theirs = other.prove_inclusion(seq + 1, size)
    their_inclusion(LEAVES[seq], root, theirs)
    assert tuple(theirs.path) == (LEAVES[seq], *path)
    assert verify_inclusion(LEAVES[seq], seq, size, theirs.path[1:], root)
    theirs = other.prove_consistency(old, size)
    their_consistency(naive_root(0, old), root, theirs)
    assert verify_consistency(old, size, other.get_state(old), root, between)


class Counting:
    """A connection that counts the leaves it reads."""

    def __init__(self, real: Connection) -> None:
        self.real = real
        self.rows = 0

    def execute(self, statement: object) -> object:
        found = self.real.execute(statement).all()  # type: ignore[call-overload]
        self.rows += len(found)

        class Result:
            def all(self) -> object:
                return found

            def scalar_one(self) -> object:
                return found[0][0]

            def scalar_one_or_none(self) -> object:
                return found[0][0] if found else None

        return Result()


@settings(deadline=None)
@given(st.data())
def test_a_proof_reads_a_few_hundred_rows_at_most(data: st.DataObject) -> None:
    size = data.draw(st.integers(1, SIZE))
    with engine().connect() as connection:
        for make in (
            lambda tree: tree.inclusion(data.draw(st.integers(0, size - 1)), size),
            lambda tree: tree.consistency(data.draw(st.integers(0, size)), size),
        ):
            counting = Counting(connection)
            make(Tree(counting))  # type: ignore[arg-type]
            assert counting.rows < 2 * 256 + 32


def test_a_damaged_tree_gives_no_proof() -> None:
    with engine().connect() as connection:
        connection.execute(delete(nodes).where(nodes.c.level == 8, nodes.c.at == 1))
        with pytest.raises(Corrupt):
            Tree(connection).inclusion(0, 600)
        connection.rollback()
        connection.execute(delete(events).where(events.c.seq == 7))
        with pytest.raises(Corrupt):
            Tree(connection).inclusion(0, 600)
        connection.rollback()
        connection.execute(update(events).where(events.c.seq == 1_299).values(seq=2_000))
        with pytest.raises(Corrupt):
            Tree(connection).root(SIZE)
        connection.rollback()
