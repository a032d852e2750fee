"""Every read and write of tenant data shows its scope, and sealed types have one producer each."""

from __future__ import annotations

import ast

import pytest

from tests.layout.scope_rule import (
    PRODUCERS,
    SCOPED_CLASSES,
    SCOPED_MODULES,
    constructions,
    parse,
    product_files,
    unscoped,
)


@pytest.mark.parametrize("module", SCOPED_MODULES)
def test_public_reads_and_writes_take_a_scope_first(module: str) -> None:
    assert list(unscoped(parse(module))) == []


@pytest.mark.parametrize("module", sorted(SCOPED_CLASSES))
def test_collections_and_stores_take_a_scope_first(module: str) -> None:
    tree = parse(module)
    assert {node.name for node in tree.body if isinstance(node, ast.ClassDef)} >= SCOPED_CLASSES[module]
    assert list(unscoped(tree, SCOPED_CLASSES[module])) == []


def test_sealed_types_are_made_by_their_producer_alone() -> None:
    strangers = [
        f"{file}:{line} makes {name}"
        for file in product_files()
        for name, line in constructions(parse(file))
        if file not in PRODUCERS.get(name, {"tenancy/control.py"} if name == "_SEAL" else set())
    ]
    assert strangers == []


def test_each_producer_does_make_its_type() -> None:
    made = {(name, file) for file in product_files() for name, _ in constructions(parse(file))}
    assert {(name, file) for name, files in PRODUCERS.items() for file in files} <= made


BAD = """
class Store(Protocol):
    def get(self, key: str) -> bytes: ...
    def late(self, key: str, tenant: TenantHandle) -> bytes: ...
    def optional(self, tenant: TenantHandle = DEFAULT) -> bytes: ...
    def maybe(self, tenant: TenantHandle | None) -> bytes: ...
    def good(self, tenant: TenantHandle) -> bytes: ...
def search(query): ...
def fine(domain: PermissionDomain, query: str): ...
"""


def test_the_rule_catches_each_way_of_breaking_it() -> None:
    assert list(unscoped(ast.parse(BAD))) == ["Store.get", "Store.late", "Store.optional", "Store.maybe", "search"]
    sneaky = ast.parse(
        "from tenancy.tenant import _SEAL\nPrincipal('t')\ntenancy.domain.PermissionDomain()\nreplace(p, seal=s)"
    )
    assert [name for name, _ in constructions(sneaky)] == ["_SEAL", "Principal", "PermissionDomain", "seal"]
