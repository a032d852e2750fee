"""The rule that imports cannot express: whoever reads or writes a tenant's data shows on whose behalf.

Every public function or method of a collection, a search or a cache store takes a `PermissionDomain`, a
`TenantHandle`, a `Principal`, a `Scope` or a view of one tenant as its first argument, annotated, without default.
And each sealed type is constructed in the one module that may.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PRODUCT = (
    "service",
    "evaluation",
    "retrieval",
    "cache",
    "generation",
    "indexing",
    "admission",
    "metering",
    "audit",
    "tenancy",
)

SCOPES = {"PermissionDomain", "TenantHandle", "Principal", "Scope", "ReadView", "WriteView"}

# Modules whose public surface reads or writes a collection or a cache.
SCOPED_MODULES = (
    "evaluation/drift.py",
    "evaluation/starter.py",
    "evaluation/store.py",
    "retrieval/search.py",
    "indexing/collection.py",
    "indexing/adding.py",
    "indexing/documents.py",
    "indexing/remote/catching_up.py",
    "indexing/remote/points.py",
    "indexing/remote/comparison.py",
    "cache/lookup.py",
    "cache/openings.py",
    "cache/rungs/freshness.py",
    "cache/rungs/identity.py",
    "cache/rungs/negatives.py",
    "tenancy/scope.py",
    "cache/sharing.py",
    "cache/certificate/evidence.py",
    "cache/certificate/negatives.py",
    "generation/adapters/registry.py",
)

# Classes held to the rule in modules that also have pure parts.
SCOPED_CLASSES = {
    "indexing/snapshot.py": {"Snapshot"},
    "indexing/remote/engines.py": {"RemoteEngines"},
    "indexing/collections/open.py": {"OpenCollections"},
    "cache/certificate/tally.py": {"Tally"},
    "cache/stores/local.py": {"LocalStore"},
    "cache/stores/port.py": {"CacheStore"},
    "cache/stores/redis.py": {"RedisStore"},
}

# What serves an operator of the whole process, or says nothing about any tenant's content. Each with its reason.
EXEMPT = {
    "of": "builds a snapshot from parts that a view gave; reads nothing",
    "stamped": "the same snapshot at later epochs; reads nothing",
    "health": "says whether a store is reached; reads nothing of any tenant",
    "shutdown": "closes connections at the end of the process",
    "close": "closes the in-memory state of a tenant id or of the process; returns nothing",
    "checked_name": "says whether a text can be a name; reads nothing",
    "purge_deleted": "removes what is left of a deleted tenant, of which there is no handle; returns a count",
}

PRODUCERS = {
    "Principal": {"tenancy/identity.py"},
    "TenantHandle": {"tenancy/control.py"},
    "AuditFiles": {"tenancy/control.py"},
    "PermissionDomain": {"tenancy/domain.py"},
    "ReadView": {"tenancy/tenant.py"},
    "WriteView": {"tenancy/tenant.py"},
    "Namespace": {"cache/key.py"},
}


def unscoped(tree: ast.Module, classes: set[str] | None = None) -> Iterator[str]:
    """Public callables of a module (or of `classes` in it) whose first argument is no scope."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and classes is None:
            if not _public(node) or _takes_scope(node.args.args, node):
                continue
            yield node.name
        elif isinstance(node, ast.ClassDef) and (classes is None or node.name in classes):
            if classes is None and not _is_port(node):
                continue
            for method in node.body:
                if isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef) and _public(method):
                    if _is_property(method) or _takes_scope(method.args.args[1:], method):
                        continue
                    yield f"{node.name}.{method.name}"


def constructions(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Calls of sealed types and unsealing by `object.__new__` or `copy`-like replacement, with their lines."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
            if name in PRODUCERS:
                yield name, node.lineno
            if name == "replace" and any(keyword.arg == "seal" for keyword in node.keywords):
                yield "seal", node.lineno
        if isinstance(node, ast.ImportFrom) and any(alias.name == "_SEAL" for alias in node.names):
            yield "_SEAL", node.lineno


def parse(relative: str) -> ast.Module:
    return ast.parse((ROOT / relative).read_text(encoding="utf-8"), filename=relative)


def product_files() -> list[str]:
    return sorted(str(path.relative_to(ROOT)) for package in PRODUCT for path in (ROOT / package).rglob("*.py"))


def _public(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return not node.name.startswith("_") and node.name not in EXEMPT


def _is_property(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any(isinstance(decorator, ast.Name) and decorator.id == "property" for decorator in node.decorator_list)


def _is_port(node: ast.ClassDef) -> bool:
    return any(isinstance(base, ast.Name) and base.id == "Protocol" for base in node.bases)


def _takes_scope(arguments: list[ast.arg], node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    if not arguments or arguments[0].annotation is None:
        return False
    if len(node.args.defaults) >= len(arguments):
        return False
    return ast.unparse(arguments[0].annotation) in SCOPES
