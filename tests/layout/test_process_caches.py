"""What the process keeps between requests is keyed by tenant; a cache that is new must be listed here, with its key."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.layout.scope_rule import parse, product_files

# Attributes that outlive a request, with what separates the tenants in them, and what bounds them.
KEPT = {
    "admission/fair.py": "tenant id, then user id; numbers without content, those at rest leave, a fixed number stays",
    "cache/stores/uses.py": "tenant id, then a name of the entry; times without content, a fixed number of both",
    "cache/stores/vectors.py": "(tenant id, namespace); a budget of bytes",
    "cache/certificate/tally.py": "tenant id, then (template, ladder, namespace); numbers, written after so many hits",
    "generation/adapters/loading.py": "a replica, then an adapter's random id; numbers without content",
    "cache/flight.py": "(tenant id, namespace, exact key); futures without content, for questions in flight",
    "generation/lanes.py": "requests that wait for one pool; each leaves as it ends",
    "generation/occupancy.py": "tenant id; numbers without content, of those that run at a replica",
    "generation/placement.py": "pools of earlier settings whose streams have not ended; they leave with the last",
    "generation/quarantine.py": "digest, under a key of the process, of (tenant id, request); a fixed number",
    "indexing/folder_rules.py": "a folder below one root of one run for one tenant; lives with the run",
    "indexing/collections/open.py": "tenant id; locks for loads under way (snapshots: tenancy.recent, by bytes)",
    "indexing/engines/registry.py": "the deployment's engines by name",
    "indexing/filters/sealed.py": "one tenant's key, then a field's name; lives with one load",
    "indexing/remote/elsewhere.py": "a collection's physical name; times without content, for a minute",
    "indexing/remote/engines.py": "tenant id, or its collection's physical name; times without content, for a minute",
    "indexing/snapshot.py": "one snapshot of one tenant, then the domain's fingerprint; a fixed number, in the budget",
    "indexing/gpu.py": "a readable set of one snapshot of one tenant",
    "retrieval/drift.py": "tenant id, then the model; sums of questions, none of fewer than a number leaves memory",
    "service/engine_check.py": "the deployment's engines by name; whether they answer",
    "service/loading.py": "tenant id; locks without content, for documents that are written",
    "service/metrics/labels.py": "tenant name; numbers without content, a fixed number of them",
    "service/metrics/patterns.py": "digest, under a key of the process, of (tenant id, user, question); a fixed number",
    "admission/shares.py": "tenant id; numbers without content, of those that wait or are served",
    "service/metrics/sketch.py": "a bucket of times, inside of one tenant's window; some 640 of them",
    "service/metrics/windows.py": "tenant id; numbers without content, a fixed number of tenants and windows",
    "tenancy/keys.py": "the key object of one tenant, then the purpose; lives with its handle",
    "tenancy/pools.py": "path of one file of one tenant; connections within the limit of open files",
    "tenancy/prepared.py": "parameters of one statement of the program, by name; fixed when it is made",
    "tenancy/sweep.py": "a label of one tenant; lives with one read transaction",
    "tenancy/recent.py": "tenant id (handles, logs, snapshots); a number or a budget, and what is in use",
    "tenancy/tenant.py": "the handle of one tenant, then the file; lives with the handle",
    "tenancy/throttle.py": "network address and key id, before any tenant is known; a fixed number",
    "tenancy/jwks.py": "issuer, before any tenant is known",
    "admission/away.py": "request ids in flight, or until the store heard of them, within allowances; scopes to begin",
    "admission/months.py": "tenant id; locks without content, while a month is read",
    "admission/redis.py": "sets of limits, without a tenant; a fixed number",
    "admission/expected.py": "tenant id, user id and model; a fixed number",
    "admission/gate.py": "request ids of leases in flight; tenant id, with its limits, a fixed number",
    "admission/local.py": "scope, of which a tenant's id is part; those at rest leave. A fixed number of limits",
    "admission/waiting.py": "scopes that requests wait for, of which a tenant's id is part; numbers and refusals",
    "audit/log.py": "the log of one tenant; a fixed number of records wait",
    "audit/marks.py": "log id; numbers, for logs with open intents of the last half minute",
    "audit/subjects.py": "the subject keys of one tenant; a fixed number, lives with its log",
}
_CACHES = {"lru_cache", "cache", "cached_property", "functools.lru_cache", "functools.cache"}
_TABLES = {"dict", "OrderedDict", "WeakValueDictionary", "defaultdict"}


def memoised(tree: ast.Module) -> Iterator[str]:
    """Functions whose results the process remembers for everybody. One without arguments has one result: a file of the
    program that is read once.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and ast.unparse(node.args):
            for decorator in node.decorator_list:
                called = decorator.func if isinstance(decorator, ast.Call) else decorator
                if ast.unparse(called) in _CACHES:
                    yield node.name


def tables(tree: ast.Module) -> Iterator[str]:
    """Attributes of objects that are annotated as tables and begin empty: what may grow between requests."""
    for node in ast.walk(tree):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Attribute) and node.value is not None:
            kind = ast.unparse(node.annotation).partition("[")[0]
            empty = ast.unparse(node.value) in {"{}", "dict()", "OrderedDict()", "WeakValueDictionary()"}
            if kind in _TABLES and empty:
                yield f"{ast.unparse(node.target)}:{node.lineno}"


# Objects that live for one request or one command.
PER_REQUEST = {
    "audit/reports/frame.py": "one report",
    "audit/trail.py": "the trail of one request",
    "generation/guardrails/topics.py": "the blocked phrases of one contract, for one request",
    "generation/links.py": "the check of one answer",
    "evaluation/drift.py": "one report",
    "audit/evidence.py": "one verification",
    "audit/proofs.py": "one proof",
    "retrieval/citations.py": "the sources of one answer, while it is verified",
    "audit/verify.py": "one verification",
    "indexing/batch.py": "one run of ingestion",
    "indexing/parse/html_text.py": "one page",
    "indexing/parse/mail.py": "one mail",
    "indexing/parse/rtf.py": "one file",
    "indexing/parse/nesting.py": "the files within one file",
    "service/replay.py": "one replay of one tenant's past hits",
}


def test_no_function_remembers_results_across_tenants() -> None:
    assert [(file, name) for file in product_files() for name in memoised(parse(file))] == []


def test_every_table_that_grows_is_listed_with_its_key() -> None:
    growing = {file for file in product_files() if list(tables(parse(file)))}
    assert growing - set(KEPT) - set(PER_REQUEST) == set()


def test_the_check_sees_each_way_of_keeping_something() -> None:
    tree = ast.parse(
        "@lru_cache(maxsize=4)\ndef f(text): ...\n@functools.cache\ndef g(*texts): ...\n@cache\ndef h(): ...\n"
        "class A:\n    def __init__(self):\n        self._kept: dict[str, int] = {}\n"
    )
    assert list(memoised(tree)) == ["f", "g"]
    assert list(tables(tree)) == ["self._kept:9"]
