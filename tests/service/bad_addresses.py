"""Addresses, methods, headers and parameters that are refused, and documents that cannot be stored."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from tests.service.bad_input import Row, Sent
from tests.service.bad_requests import (
    ANSWER,
    DELETE,
    ENTRIES,
    EVENT,
    EVENTS,
    INVALIDATE,
    LIST,
    MODELS,
    PATCH,
    PUT,
    QUESTION,
    SHOW,
    row,
)  # fmt: skip

IDS: Final = {
    "../audit/events": 422,
    "..%2F..%2Fetc%2Fpasswd": 422,
    "%2e%2e/audit/events": 422,
    ".": 422,
    "..": 422,
    "a/./b": 422,
    "a%00b": 422,
    "a%0Ab": 422,
    "a%E2%80%AEb": 422,
    "%20": 422,
    "%E3%80%80": 422,
    "a%E2%80%8Cb": 422,
    "a" * 1_001: 422,
    "%FF": 400,
    "%ED%A0%80": 400,
}
ABSENT_IDS: Final = ("absent.md", "%20notice.md", "a'%20OR%20'1'='1", "%25", "notice.md/", "NOTICE.MD", "a" * 1_000)


def documents() -> Iterator[Row]:
    for name, status in IDS.items():
        code = {400: "malformed", 422: "invalid-input"}[status]
        for good, suffix in ((SHOW, ""), (PUT, ""), (DELETE, ""), (PATCH, "/acl")):
            sent = good.but(target=f"/v1/documents/{name}{suffix}")
            yield row(f"{good.method} id {name[:30]}", sent, status, code, good)
    for name in ABSENT_IDS:
        for good, suffix in ((SHOW, ""), (DELETE, ""), (PATCH, "/acl")):
            sent = good.but(target=f"/v1/documents/{name}{suffix}")
            yield row(f"{good.method} absent id {name[:30]}", sent, 404, "not-found", good)
    for target in ("/v1/documents%2Fnotice.md", "/v1/%64ocuments/notice.md", "/v1/x/v1/documents/notice.md"):
        yield row(f"GET {target}", SHOW.but(target=target), 404, "not-found", SHOW)
    yield row("PATCH without acl", PATCH.but(target=SHOW.target), 404, "not-found", PATCH)
    yield row("PATCH of nothing's acl", PATCH.but(target="/v1/documents//acl"), 422, "invalid-input", PATCH)
    yield row("PUT without an id", PUT.but(target="/v1/documents/"), 405, "method-not-allowed", PUT)


LABELS: Final[dict[str, Any]] = {
    "a bare name": ["ana"],
    "an unknown kind": ["role:admin"],
    "a tenant with a name": ["tenant:globex"],
    "no name": ["user:"],
    "a name with a space before": ["user: ana"],
    "a name with a line break": ["group:a\nb"],
    "a name of 201 characters": ["user:" + "a" * 201],
    "a number": [1],
    "a string": "tenant",
    "empty": [""],
}
CONTENT: Final[dict[str, dict[str, Any]]] = {
    "neither text nor file": {"text": ...},
    "both text and file": {"content_base64": "YQ=="},
    "text a number": {"text": 1},
    "text with a NUL": {"text": "a\x00"},
    "base64 of other characters": {"text": ..., "content_base64": "%%%"},
    "base64 without padding": {"text": ..., "content_base64": "YQ"},
    "base64 with a line break": {"text": ..., "content_base64": "YQ==\n"},
    "base64 of a URL": {"text": ..., "content_base64": "_-__"},
    "base64 not ASCII": {"text": ..., "content_base64": "é"},
    "title empty": {"title": ""},
    "title with a line break": {"title": "a\nb"},
    "title of 501 characters": {"title": "a" * 501},
    "media type of 201 characters": {"media_type": "a" * 201},
    "metadata a list": {"metadata": []},
    "metadata with a list": {"metadata": {"a": [1]}},
    "metadata with null": {"metadata": {"a": None}},
    "metadata with a NUL": {"metadata": {"a\x00": 1}},
}
# What can be read as JSON, but not as a document.
UNREADABLE: Final[dict[str, dict[str, Any]]] = {
    "empty text": {"text": ""},
    "blank text": {"text": " \n"},
    "empty file": {"text": ..., "content_base64": ""},
    "no PDF": {"text": ..., "content_base64": "AAECAw==", "media_type": "application/pdf"},
    "unknown media type of bytes": {"text": ..., "content_base64": "gYKDhIU=", "media_type": "application/x-nope"},
    "a ZIP": {"text": ..., "content_base64": "UEsFBgAAAAAAAAAAAAAAAAAAAAAAAA=="},
    "HTML without text": {"text": "<html></html>", "media_type": "text/html"},
    "JSON Lines without text": {"text": "{}", "media_type": "application/jsonl"},
}


def content() -> Iterator[Row]:
    for name, value in LABELS.items():
        for side in ("allow", "deny"):
            sent = PUT.with_json(**{side: value})
            yield row(f"PUT {side}: {name}", sent, 422, "invalid-input", PUT.with_json(deny=["user:bo"]))
        yield row(f"PATCH allow: {name}", PATCH.with_json(allow=value), 422, "invalid-input", PATCH)
    yield row("PATCH without allow", PATCH.with_json(allow=..., deny=["tenant"]), 422, "invalid-input", PATCH)
    for name, fields in CONTENT.items():
        sent = PUT.but(target="/v1/documents/bad").with_json(**fields)
        yield row(f"PUT {name}", sent, 422, "invalid-input", PUT)
    for name, fields in UNREADABLE.items():
        sent = PUT.but(target="/v1/documents/bad").with_json(**fields)
        yield row(f"PUT {name}", sent, 422, "parse-failure", PUT)


TIMES: Final = (
    "yesterday", "", "nan", "inf", "1e308", "-1", "9e99", "2026-13-01", "0000-01-01", "2026-01-01T00:00:00%2B99:00",
)  # fmt: skip
AUDIT: Final = {
    "limit=0": 422, "limit=1001": 422, "limit=-1": 422, "limit=1.5": 422, "limit=many": 422, "limit=": 422,
    "limit=9999999999999999999999999": 422, "since=2026-01-02&until=2026-01-01": 422, "after=AAAA": 422,
    "after=%C3%A9": 422, "after=" + "A" * 32: 422, "after=" + "A" * 5_000: 422, "outcome=fine": 422,
    "phase=x": 422, "cache.status=x": 422, "as_of=-1": 422, "as_of=99999999": 422, "as_of=x": 422,
    "as_of=" + "9" * 30: 422, "order=up": 422, "action=a%0Ab": 422, "document=%00": 422, "actor=%00": 422,
    "actor=nobody": 404, "actor=eve": 404, "actor=": 404, "document=%ff": 400, "document=%ED%A0%80": 400,
}  # fmt: skip
NO_EVENT: Final = ("-1", "99999", "9" * 30, "9" * 5_000, "x", "1.5", "0x1", "0/1")
CACHE: Final = {
    "": 422, "all=false": 422, "all=maybe": 422, "all=true&entry=x": 422, "entry=": 422, "entry=%00": 422,
    "template=": 422, "older_than=-1": 422, "older_than=nan": 422, "older_than=soon": 422, "document=absent.md": 404,
    "document=": 404, "user=nobody": 404, "user=eve": 404,
}  # fmt: skip
PAGES: Final = {
    LIST: ("limit=0", "limit=1001", "limit=x", "limit=", "limit=" + "9" * 30, "after=%00", "limit=1;limit=2"),
    ENTRIES: ("limit=0", "limit=1001", "offset=-1", "offset=x", "offset=" + "9" * 30),
}


def parameters() -> Iterator[Row]:
    codes = {400: "malformed", 404: "not-found", 422: "invalid-input"}
    for bound in ("since", "until"):
        for value in TIMES:
            sent = EVENTS.with_query(f"{bound}={value}")
            good = EVENTS.with_query(f"{bound}=2026-01-01T00:00:00Z")
            yield row(f"audit {bound}={value}", sent, 422, "invalid-input", good)
    for query, status in AUDIT.items():
        sent = EVENTS.but(target=f"/v1/audit/events?{query}")
        yield row(f"audit {query[:40]}", sent, status, codes[status], EVENTS)
    for seq in NO_EVENT:
        sent = EVENT.but(target=f"/v1/audit/events/{seq}")
        yield row(f"audit event {seq[:40]}", sent, 404, "not-found", EVENT)
    for query, status in CACHE.items():
        sent = INVALIDATE.but(target=f"/v1/cache/entries?{query}")
        yield row(f"invalidate {query or 'nothing'}", sent, status, codes[status], INVALIDATE)
    for good, queries in PAGES.items():
        for query in queries:
            yield row(f"{good.target}?{query[:40]}", good.with_query(query), 422, "invalid-input", good)
    for name, query, status, code in (
        ("twice", "limit=2&limit=3", 422, "invalid-input"),
        ("twice, once encoded", "limit=2&l%69mit=3", 422, "invalid-input"),
        ("without a name", "=1", 400, "unknown-parameter"),
        ("a percent sign", "%", 400, "unknown-parameter"),
        ("not UTF-8", "limit=%ff", 400, "malformed"),
        ("in capitals", "LIMIT=2", 400, "unknown-parameter"),
        ("101 of them", "&".join(f"a{number}=1" for number in range(101)), 400, "malformed"),
    ):
        yield row(f"parameter {name}", LIST.with_query(query), status, code, LIST.with_query("limit=2"))


UNKNOWN: Final = (
    "/", "/metrics", "/metrics/", "/admin", "/.env", "/v1", "/v1/nope", "/v2/retrieve", "/V1/models", "/v1/models/x",
    "/v1/models%00", "/v1/models;a=b", "/v1/models#x", "/v1/../metrics", "/schema/swagger", "/schema/x/y", "/healthz",
    "http://evil.example/v1/models", "*", "/v1/cache/entries/ce_x", "/v1/cache", "/v1/audit",
)  # fmt: skip
METHODS: Final = (
    (QUESTION, ("GET", "HEAD", "PUT", "PATCH", "DELETE", "TRACE", "BREW", "post"), "OPTIONS, POST"),
    (ANSWER, ("GET", "HEAD", "DELETE"), "OPTIONS, POST"),
    (MODELS, ("HEAD", "POST", "DELETE"), "GET, OPTIONS"),
    (LIST, ("HEAD", "POST", "PUT", "DELETE"), "GET, OPTIONS"),
    (SHOW, ("HEAD", "POST"), "DELETE, GET, OPTIONS, PATCH, PUT"),
    (EVENTS, ("HEAD", "POST", "PUT", "PATCH", "DELETE"), "GET, OPTIONS"),
    (EVENT, ("POST", "PUT", "PATCH", "DELETE"), "GET, OPTIONS"),
    (ENTRIES, ("HEAD", "POST"), "DELETE, GET, OPTIONS"),
)


def addresses() -> Iterator[Row]:
    for target in UNKNOWN:
        yield row(f"GET {target}", MODELS.but(target=target), 404, "not-found", MODELS)
    yield row("unknown address without a credential", Sent("GET", "/v1/nope"), 404, "not-found", MODELS)
    for good, methods, allowed in METHODS:
        for method in methods:
            name = f"{method} {good.target.partition('?')[0]}"
            sent = good.but(method=method, body=None)
            yield row(name, sent, 405, "method-not-allowed", good, headers=(("allow", allowed),))
    yield row("OPTIONS without a credential", Sent("OPTIONS", "/v1/models"), 401, "unauthenticated", MODELS)


def wire() -> Iterator[Row]:
    """Refused by the HTTP parser, before the application."""
    for name, sent in {
        "a header of 70 KB": MODELS.with_header("X-Long", b"a" * 70_000).but(unfinished=True),
        "a header name with a space": MODELS.with_header("X Long", b"a"),
        "a NUL in a header": MODELS.with_header("X-Request-ID", b"a\x00b"),
        "a line break and no header": MODELS.with_header("X-Request-ID", b"a\r\nnonsense"),
        "a space in the address": MODELS.but(target="/v1/models ?a"),
        "bytes in the address": MODELS.but(target="/v1/models\x01"),
        "two hosts": MODELS.with_header("Host", b"evil.example"),
    }.items():
        yield row(name, sent, 400, None, MODELS)


def rows() -> list[Row]:
    return [*documents(), *content(), *parameters(), *addresses(), *wire()]


# What is accepted on purpose, though a stricter or laxer server is imaginable.
ACCEPTED: Final = {
    "own tenant in the body": QUESTION.with_json(tenant="acme"),
    "own tenant in the query": LIST.with_query("tenant=acme"),
    "tenant null": QUESTION.with_json(tenant=None),
    "top_k 1": QUESTION.with_json(top_k=1),
    "top_k 100": QUESTION.with_json(top_k=100),
    "top_k null is the default": QUESTION.with_json(top_k=None),
    "8,000 characters": QUESTION.with_json(query="word " * 1_600),
    "characters beyond the first plane": QUESTION.with_json(query="𝔫𝔬𝔱𝔦𝔠𝔢 📜"),
    "vendor JSON": QUESTION.with_header("Content-Type", b"application/vnd.acme+json"),
    "a length of zero where no body is taken": LIST.with_header("Content-Length", b"0"),
    "a trailing slash": MODELS.but(target="/v1/models/"),
    "doubled slashes": MODELS.but(target="//v1//models"),
    "a percent-encoded letter": MODELS.but(target="/v1/%6dodels"),
    "Accept of another type": QUESTION.with_header("Accept", b"application/xml"),
    "Accept of nothing": QUESTION.with_header("Accept", b"*/*;q=0"),
    "the client waits to send": QUESTION.with_header("Expect", b"100-continue"),
    "500 headers": MODELS.but(headers=tuple((f"X-{number}", b"a") for number in range(500))),
    "a header of 50 KB": MODELS.with_header("X-Long", b"a" * 50_000),
    "a request id of the client, which is not used": MODELS.with_header("X-Request-ID", b"<script>"),
    "a request id with a line break": MODELS.with_header("X-Request-ID", b"a\r\nX-Evil: 1"),
    "a request id with a bare line feed": MODELS.with_header("X-Request-ID", b"a\nX-Evil: 1"),
    "a media type that nobody knows, of text": PUT.with_json(media_type="application/x-nope"),
    "a document's id of 1,000 characters": PUT.but(target=f"/v1/documents/{'a' * 1_000}"),
    "and its access list": PATCH.but(target=f"/v1/documents/{'a' * 1_000}/acl"),
    "a document's id with a quote": PUT.but(target="/v1/documents/a'--;"),
    "health with a parameter": Sent("GET", "/healthz/live?at=1"),
}
