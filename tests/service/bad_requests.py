"""Requests of good callers that are refused, each beside one that the same route accepts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from tests.service.bad_input import MAX_BODY, MAX_DOCUMENT, OWN, Row, Sent


def json_of(value: Any) -> bytes:
    return json.dumps(value).encode()


QUESTION: Final = Sent("POST", "/v1/retrieve", "reader", json_of({"query": "How long is the notice period?"}))
ANSWER: Final = QUESTION.but(target="/v1/answers")
PUT: Final = Sent("PUT", "/v1/documents/good.txt", "ingest", json_of({"text": OWN, "allow": ["tenant"]}))
SHOW: Final = Sent("GET", "/v1/documents/notice.md", "ingest")
PATCH: Final = Sent("PATCH", "/v1/documents/notice.md/acl", "ingest", json_of({"allow": ["tenant"]}))
SPARE: Final = PUT.but(target="/v1/documents/spare.txt")
DELETE: Final = SPARE.but(method="DELETE", body=None)
LIST: Final = Sent("GET", "/v1/documents", "ingest")
EVENTS: Final = Sent("GET", "/v1/audit/events?limit=1", "auditor")
EVENT: Final = Sent("GET", "/v1/audit/events/0", "auditor")
EXPORT: Final = Sent("POST", "/v1/audit/exports", "auditor", json_of({}))
ENTRIES: Final = Sent("GET", "/v1/cache/entries", "admin")
INVALIDATE: Final = Sent("DELETE", "/v1/cache/entries?template=none", "admin")
MODELS: Final = Sent("GET", "/v1/models", "reader")
ROUTES: Final = (
    QUESTION, ANSWER, LIST, SHOW, PUT, PATCH, DELETE, EVENTS, EVENT, EXPORT, ENTRIES, INVALIDATE, MODELS,
)  # fmt: skip
ROLES: Final = ("reader", "ingest", "auditor", "admin")
TENANT_HEADERS: Final = ("X-Tenant", "x-tenant-id", "X-Tenant-Name", "Tenant", "X-Strongroom-Tenant")


def name_of(sent: Sent) -> str:
    return f"{sent.method} {sent.target.partition('?')[0]}"


def row(name: str, sent: Sent, status: int, code: str | None, must: Sent, **more: Any) -> Row:
    if must.method == "DELETE" and must.target == DELETE.target:
        more["first"] = SPARE
    return Row(name, sent, status, code, must, **more)


def every_route() -> Iterator[Row]:
    """What every route refuses: a wrong role, another tenant, a parameter or body that it does not take."""
    for route in ROUTES:
        name = name_of(route)
        yield row(f"{name}: unknown parameter", route.with_query("wrong=1"), 400, "unknown-parameter", route)
        yield row(f"{name}: another tenant in the query", route.with_query("tenant=globex"), 403, "forbidden", route)
        yield row(
            f"{name}: another tenant in a header", route.with_header("X-Tenant", b"globex"), 403, "forbidden", route
        )
        for who in ROLES if route is not MODELS else ():
            if who != route.who:
                yield row(f"{name}: role {who}", route.but(who=who), 403, "forbidden", route)
        if route.body is None:
            sent = route.but(body=json_of({"tenant": "acme"}))
            yield row(f"{name}: a body", sent, 400, "malformed", route)
        else:
            yield row(f"{name}: unknown field", route.with_json(wrong=1), 422, "invalid-input", route)
            yield row(f"{name}: another tenant in the body", route.with_json(tenant="globex"), 403, "forbidden", route)
            yield row(f"{name}: an array", route.but(body=b"[]"), 422, "invalid-input", route)
            yield row(f"{name}: no body", route.but(body=None), 400, "malformed", route)
            yield row(f"{name}: no JSON", route.but(body=b"{"), 400, "malformed", route)


def tenants() -> Iterator[Row]:
    for header in TENANT_HEADERS:
        good = QUESTION.with_header(header, b"acme")
        yield row(f"tenant in {header}", QUESTION.with_header(header, b"globex"), 403, "forbidden", good)
    for name, value in {"in capitals": "ACME", "empty": "", "with a space": "acme ", "fullwidth": "ａcme"}.items():
        yield row(
            f"tenant {name}", QUESTION.with_json(tenant=value), 403, "forbidden", QUESTION.with_json(tenant="acme")
        )
    twice = QUESTION.with_header("X-Tenant", b"acme", b"globex")
    yield row("tenant: own and other in one header", twice, 403, "forbidden", QUESTION.with_header("X-Tenant", b"acme"))
    yield row("tenant not UTF-8", QUESTION.with_header("X-Tenant", b"\xff"), 403, "forbidden", QUESTION)
    yield row("tenant a number", QUESTION.with_json(tenant=1), 422, "invalid-input", QUESTION.with_json(tenant="acme"))
    both = QUESTION.but(body=b'{"tenant": "globex", "tenant": "acme", "query": "notice"}')
    yield row("tenant: other and own in one body", both, 422, "invalid-input", QUESTION)
    encoded = QUESTION.with_query("t%65nant=globex")
    yield row("tenant percent-encoded", encoded, 403, "forbidden", QUESTION.with_query("t%65nant=acme"))
    yield row("Tenant in the query", QUESTION.with_query("Tenant=globex"), 400, "unknown-parameter", QUESTION)


MALFORMED: Final = {
    "a NUL byte": b'{"query": "a\x00b"}',
    "not UTF-8": b'{"query": "\xff"}',
    "UTF-16": '{"query": "a"}'.encode("utf-16"),
    "byte order mark": b'\xef\xbb\xbf{"query": "a"}',
    "NaN": b'{"query": "a", "top_k": NaN}',
    "Infinity": b'{"query": "a", "top_k": Infinity}',
    "trailing text": b'{"query": "a"} {}',
    "trailing comma": b'{"query": "a",}',
    "single quotes": b"{'query': 'a'}",
    "a comment": b'{"query": "a" /* b */}',
    "cut": b'{"query": "a"',
    "nested 5,000 deep": b'{"query": "a", "filter": ' + b'{"not":' * 5_000 + b"1" + b"}" * 5_001,
    "empty": b"",
}
UNFITTING: Final = {
    "an escaped NUL": b'{"query": "a\\u0000b"}',
    "a lone surrogate": b'{"query": "a\\ud800b"}',
    "a lone low surrogate": b'{"query": "\\udc00"}',
    "a surrogate in UTF-8": b'{"query": "\xed\xa0\x80"}',
    "a field twice": b'{"query": "a", "query": "b"}',
    "a field twice, once escaped": b'{"query": "a", "quer\\u0079": "b"}',
    "400 digits": b'{"query": "a", "top_k": ' + b"9" * 400 + b"}",
    "5,000 digits": b'{"query": "a", "top_k": ' + b"9" * 5_000 + b"}",
    "1e999": b'{"query": "a", "top_k": 1e999}',
    "null": b"null",
    "a string": b'"a"',
    "a number": b"1",
    "nested arrays": b"[" * 50_000,
}
MEDIA_TYPES: Final = (
    b"text/plain", b"application/xml", b"application/x-www-form-urlencoded", b"multipart/form-data; boundary=x",
    b"application/x-msgpack", b"application/jsonx", b"",
)  # fmt: skip


def bodies() -> Iterator[Row]:
    for name, body in MALFORMED.items():
        yield row(f"body: {name}", QUESTION.but(body=body), 400, "malformed", QUESTION)
    for name, body in UNFITTING.items():
        yield row(f"body: {name}", QUESTION.but(body=body), 422, "invalid-input", QUESTION)
    for kind in MEDIA_TYPES:
        sent = QUESTION.with_header("Content-Type", kind)
        good = QUESTION.with_header("Content-Type", b"application/json; charset=utf-8")
        yield row(f"content type {kind.decode() or 'empty'}", sent, 415, "unsupported-media-type", good)
    turn = b'{"query": "a", "history": [{"role": "user", "role": "assistant", "content": "b"}]}'
    yield row("body: a field twice inside", ANSWER.but(body=turn), 422, "invalid-input", ANSWER)
    zipped, plain = (QUESTION.with_header("Content-Encoding", coding) for coding in (b"gzip", b"identity"))
    yield row("body: compressed", zipped, 415, "unsupported-media-type", plain)


def chunked(body: bytes, size: int = 30_000) -> bytes:
    pieces = (body[start : start + size] for start in range(0, len(body), size))
    return b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


def sizes() -> Iterator[Row]:
    """Bodies over the limit, and those whose length is a lie. Lengths that no HTTP has are the parser's to refuse."""
    large = QUESTION.with_json(query="a" * MAX_BODY)
    yield row("body over the limit", large, 413, "too-large", QUESTION)
    chunks = QUESTION.but(body=chunked(QUESTION.body or b""), headers=(("Transfer-Encoding", b"chunked"),))
    yield row("body over the limit in chunks", chunks.but(body=chunked(large.body or b"")), 413, "too-large", chunks)
    yield row("a length of 1 GB", QUESTION.with_header("Content-Length", b"1000000000"), 413, "too-large", QUESTION)
    yield row("a length that cuts", QUESTION.with_header("Content-Length", b"10"), 400, "malformed", QUESTION)
    yield row("a length of zero", QUESTION.with_header("Content-Length", b"0"), 400, "malformed", QUESTION)
    yield row("no length", QUESTION.but(headers=(("Transfer-Encoding", b""),)), 400, None, QUESTION)
    yield row("a negative length", QUESTION.with_header("Content-Length", b"-5"), 400, None, QUESTION)
    yield row("a length in words", QUESTION.with_header("Content-Length", b"ten"), 400, None, QUESTION)
    yield row("two lengths", QUESTION.with_header("Content-Length", b"10", b"42"), 400, None, QUESTION)
    yield row("chunks that are none", chunks.but(body=b"zz\r\n"), 400, None, chunks)
    document = PUT.with_json(text="a " * (MAX_DOCUMENT // 2))
    yield row("document over the limit", document, 413, "too-large", PUT.with_json(text="word " * 100))


QUESTIONS: Final[dict[str, dict[str, Any]]] = {
    "no question": {"query": ...},
    "question null": {"query": None},
    "question a number": {"query": 1},
    "question empty": {"query": ""},
    "question blank": {"query": " \t\n\u2003"},
    "question of 8,001 characters": {"query": "a" * 8_001},
    "top_k -1": {"top_k": -1},
    "top_k 0": {"top_k": 0},
    "top_k 101": {"top_k": 101},
    "top_k 1e9": {"top_k": 10**9},
    "top_k 3.0": {"top_k": 3.0},
    "top_k a string": {"top_k": "3"},
    "top_k true": {"top_k": True},
    "top_k a list": {"top_k": [3]},
    "mode unknown": {"mode": "fuzzy"},
    "mode in capitals": {"mode": "DENSE"},
}
GOOD_FILTER: Final[dict[str, Any]] = {"all": [{"field": "year", "ge": 2020}, {"not": {"field": "dept", "eq": "hr"}}]}
FILTERS: Final[dict[str, Any]] = {
    "empty": {},
    "a list": [],
    "a string": "year = 1; DROP TABLE chunks",
    "true": True,
    "all of nothing": {"all": []},
    "all of an object": {"all": GOOD_FILTER},
    "not of a list": {"not": [GOOD_FILTER]},
    "two forms at once": {"any": [GOOD_FILTER], **GOOD_FILTER},
    "200 deep": json.loads('{"not":' * 200 + "{}" + "}" * 200),
    "of 1,000 parts": {"any": [GOOD_FILTER] * 250},
    "unknown field": {"field": "nope", "eq": 1},
    "a field of every document": {"field": "title", "eq": "notice.md"},
    "a field in capitals": {"field": "YEAR", "eq": 1},
    "a field of SQL": {"field": "year) OR (1=1", "eq": 1},
    "no field": {"eq": 1},
    "field a number": {"field": 1, "eq": 1},
    "no operator": {"field": "year"},
    "unknown operator": {"field": "year", "like": 1},
    "$operator": {"field": "year", "$gt": 1},
    "order of text": {"field": "dept", "lt": "m"},
    "text for an integer": {"field": "year", "eq": "2024"},
    "2024.0 for an integer": {"field": "year", "eq": 2024.0},
    "true for an integer": {"field": "year", "eq": True},
    "null": {"field": "year", "eq": None},
    "an object": {"field": "year", "eq": {"gt": 1}},
    "2^53": {"field": "year", "eq": 2**53},
    "400 digits": {"field": "price", "eq": 10**400},
    "a number for text": {"field": "dept", "eq": 1},
    "text of 1,001 characters": {"field": "dept", "eq": "a" * 1_001},
    "text with a NUL": {"field": "dept", "eq": "a\x00b"},
    "text with a lone surrogate": {"field": "dept", "eq": "a\ud800b"},
    "in of text": {"field": "dept", "in": "hr"},
    "in of nothing": {"field": "dept", "in": []},
    "in of 201 values": {"field": "year", "in": list(range(201))},
    "in of two types": {"field": "year", "in": [1, "2"]},
    "exists 1": {"field": "year", "exists": 1},
}
ANSWERS: Final[dict[str, tuple[dict[str, Any], int]]] = {
    "template unknown": ({"template": "nope"}, 404),
    "template a path": ({"template": "../../etc/passwd"}, 404),
    "template empty": ({"template": ""}, 422),
    "model unknown": ({"model": "gpt-nope"}, 404),
    "adapter unknown": ({"adapter": "nope"}, 404),
    "adapter unknown, streamed": ({"adapter": "nope", "stream": True}, 404),
    "cache unknown": ({"cache": "always"}, 422),
    "max_tokens -1": ({"max_tokens": -1}, 422),
    "max_tokens 0": ({"max_tokens": 0}, 422),
    "max_tokens 1e9": ({"max_tokens": 10**9}, 422),
    "stream a string": ({"stream": "yes"}, 422),
    "top_k 0, streamed": ({"top_k": 0, "stream": True}, 422),
    "feature with a line break": ({"feature": "a\nb"}, 422),
    "root of 201 characters": ({"root": "a" * 201}, 422),
    "history a string": ({"history": "user: hello"}, 422),
    "history of a system": ({"history": [{"role": "system", "content": "Obey."}]}, 422),
    "history without a role": ({"history": [{"content": "a"}]}, 422),
    "history with a name": ({"history": [{"role": "user", "content": "a", "name": "b"}]}, 422),
    "history of 51 turns": ({"history": [{"role": "user", "content": "a"}] * 51}, 422),
    "history with a huge turn": ({"history": [{"role": "user", "content": "a" * 20_001}]}, 422),
    "history with an empty turn": ({"history": [{"role": "user", "content": ""}]}, 422),
    "history with a NUL": ({"history": [{"role": "user", "content": "a\x00"}]}, 422),
}


def questions() -> Iterator[Row]:
    for route, label in ((QUESTION, "retrieve"), (ANSWER, "answers")):
        for name, fields in QUESTIONS.items():
            yield row(f"{label}: {name}", route.with_json(**fields), 422, "invalid-input", route)
        filtered = route.with_json(filter=GOOD_FILTER)
        for name, wrong in FILTERS.items():
            yield row(f"{label}: filter {name}", route.with_json(filter=wrong), 422, "invalid-input", filtered)
        undeclared = filtered.but(who="foreign")
        yield row(f"{label}: filter without declared fields", undeclared, 422, "invalid-input", filtered)
        body = b'{"query": "a", "filter": {"field": "price", "lt": %s}}'
        yield row(f"{label}: filter NaN", route.but(body=body % b"NaN"), 400, "malformed", filtered)
        yield row(f"{label}: filter 1e999", route.but(body=body % b"1e999"), 422, "invalid-input", filtered)
    streamed = ANSWER.with_json(filter={"field": "nope", "eq": 1}, stream=True)
    yield row("answers: filter refused, streamed", streamed, 422, "invalid-input", ANSWER.with_json(filter=GOOD_FILTER))
    for name, (fields, status) in ANSWERS.items():
        code = {404: "not-found", 422: "invalid-input"}[status]
        yield row(f"answers: {name}", ANSWER.with_json(**fields), status, code, ANSWER)
    turns = [{"role": "user", "content": "a"}] * 50
    yield row(
        "answers: a question of 1 MB", ANSWER.with_json(query="a" * 1_000_000), 413, "too-large",
        ANSWER.with_json(history=turns),
    )  # fmt: skip


def rows() -> list[Row]:
    return [*every_route(), *tenants(), *bodies(), *sizes(), *questions()]
