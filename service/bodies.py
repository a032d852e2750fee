"""Request bodies: strict JSON into frozen structs. An unknown field, a wrong type or text that is no text is refused
with the field's name; nothing is converted silently.
"""

from __future__ import annotations

import asyncio
import json
import re
from typing import Annotated, Any, Final, Literal, TypeVar

import msgspec
from litestar import Request
from litestar.exceptions import InternalServerException
from litestar.params import HeaderParameter
from msgspec import Meta

from service.disconnect import ClientGone
from service.problems import Malformed, UnsupportedMediaType
from tenancy.errors import Forbidden, InvalidInput, TooLarge
from tenancy.identity import Principal

MAX_QUERY: Final = 8_000
MAX_HISTORY: Final = 50
MAX_TURN: Final = 20_000
MAX_FRAME: Final = 1_000_000
"""Bytes of a body without a document's text: small parts by the million would stop the event loop for seconds."""
BODY_S: Final = 300.0
REFUSED_BODY: Final = "refused_body"
"""What a route's `opt` calls with the request and the `InvalidInput` of its body, to raise it on record."""
_NUL: Final = "\x00"
_FIELD: Final = re.compile(r"(?:unknown|required) field `(.*)`")

T = TypeVar("T")

Query = Annotated[
    str, Meta(min_length=1, max_length=MAX_QUERY, description="The question.", examples=["How long is the notice?"])
]
TopK = Annotated[int, Meta(ge=1, le=100, description="How many passages.")]
Mode = Annotated[Literal["dense", "lexical", "hybrid"], Meta(description="Which legs of the search run.")]
Name = Annotated[str, Meta(min_length=1, max_length=200)]
METADATA: Final = (
    "Values to keep with it. Where a field that the contract declares holds a value of another type, the outcome warns "
    "with `metadata_type:` and its name, and filters do not find the document by it."
)
FILTER: Final = (
    'A comparison `{"field": NAME, OPERATOR: VALUE}` with `eq`, `ne`, `in` or `exists`, for numbers also `lt`, `le`, '
    "`gt` and `ge` (several in one: all of them), or `all` or `any` of a list of filters, or `not` of one. The fields "
    "and their types are those of the tenant's contract. Where a document lacks the field, or holds a value of another "
    "type, every comparison is false, and `not` of it true."
)
FILTERS: Final = [
    {"field": "year", "ge": 2020, "lt": 2025},
    {"all": [{"field": "department", "in": ["legal", "hr"]}, {"not": {"field": "draft", "eq": True}}]},
]
Labels = Annotated[
    list[Annotated[str, Meta(min_length=1, max_length=300)]],
    Meta(max_length=10_000, description="`user:NAME`, `group:NAME` or `tenant`.", examples=[["group:legal"]]),
]


SignedRoot = Annotated[
    str | None,
    HeaderParameter(
        name="Strongroom-Root", description="A root of POST /v1/roots, which this request belongs to and draws on."
    ),
]


class Body(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`tenant` never selects: it is either the credential's own or refused with 403."""

    tenant: Annotated[str, Meta(description="Not needed; another tenant than the credential's is refused.")] | None = (
        None
    )


class Question(Body, frozen=True):
    """`filter` narrows the search to documents by metadata fields that the tenant's contract declares."""

    query: Query
    top_k: TopK | None = None
    mode: Mode | None = None
    filter: Annotated[dict[str, Any], Meta(description=FILTER, examples=FILTERS)] | None = None


class RetrieveRequest(Question, frozen=True):
    """Ask for passages."""


class HistoryTurn(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An earlier message of the conversation, oldest first."""

    role: Literal["user", "assistant"]
    content: Annotated[str, Meta(min_length=1, max_length=MAX_TURN)]


class AnswerRequest(Question, frozen=True):
    """Ask for an answer. `feature` and `root` are the caller's own ids for metering and for grouping requests."""

    template: Annotated[Name, Meta(description="A prompt template of GET /v1/templates.")] | None = None
    model: Annotated[Name, Meta(description="A model of GET /v1/models.")] | None = None
    adapter: Annotated[Name, Meta(description="An adapter of GET /v1/models.")] | None = None
    max_tokens: Annotated[int, Meta(ge=1, le=32_768, description="Tokens of the answer, at most.")] | None = None
    stream: Annotated[bool, Meta(description="Answer as server-sent events.")] = False
    cache: (
        Annotated[
            Literal["default", "bypass", "refresh"],
            Meta(description="Use remembered answers, leave them, or replace them, as far as the template permits."),
        ]
        | None
    ) = None
    history: Annotated[
        list[HistoryTurn], Meta(max_length=MAX_HISTORY, description="The conversation so far, oldest first.")
    ] = []
    feature: Annotated[Name, Meta(description="Your own id, for metering.")] | None = None
    root: Annotated[Name, Meta(description="Your own id of a conversation or job, for the audit.")] | None = None


MOST = 1_000_000_000_000
Budget = Annotated[int, Meta(ge=0, le=MOST)]


class RootRequest(Body, frozen=True):
    """What a root may use in its life; what is left out is bounded by its parent, its user and its tenant alone."""

    calls: Annotated[Budget, Meta(description="Requests, in all.")] | None = None
    tokens: Annotated[Budget, Meta(description="Tokens of prompts and answers, in all.")] | None = None
    money: Annotated[Budget, Meta(description="Micro-units, in all.")] | None = None
    parallel: Annotated[int, Meta(ge=1, le=MOST, description="Requests at one time.")] | None = None
    deadline: Annotated[float, Meta(gt=0, description="Seconds until its end.")] | None = None
    parent: Annotated[str, Meta(max_length=4_096, description="A root to draw from as well.")] | None = None


class FeedbackRequest(Body, frozen=True):
    """What became of an answer of the caller's own."""

    answer_id: Annotated[
        str,
        Meta(
            pattern="^[0-9a-f]{32}$", description="The `request_id` of the answer.", examples=["0123456789abcdef" * 2]
        ),
    ]
    verdict: Annotated[
        Literal["wrong_hit", "wrong_answer", "edited", "good"],
        Meta(description="`wrong_hit`: a remembered answer that does not fit the question."),
    ]


class DocumentBody(Body, frozen=True):
    """A document: its text, or the base64 of a file. `allow` and `deny` are its whole access list; without both an
    existing document keeps its list, and nobody reads a new one.
    """

    text: Annotated[str, Meta(description="The document as text; or give content_base64.")] | None = None
    content_base64: Annotated[str, Meta(description="The file, in base64.")] | None = None
    media_type: (
        Annotated[str, Meta(max_length=200, description="What the file is.", examples=["text/markdown"])] | None
    ) = None
    title: Annotated[str, Meta(min_length=1, max_length=500, description="Instead of the file's own.")] | None = None
    metadata: Annotated[dict[str, str | int | float | bool], Meta(description=METADATA)] = {}
    allow: Labels | None = None
    deny: Labels | None = None


class _Bulk(msgspec.Struct):
    """The long fields of a body, skipped over and not read."""

    text: msgspec.Raw = msgspec.Raw(b"")
    content_base64: msgspec.Raw = msgspec.Raw(b"")


class AccessBody(Body, frozen=True):
    """A document's new access list, as a whole. Deny wins; without `allow` nobody reads it."""

    allow: Labels
    deny: Labels = []


class StrictRequest(Request[Any, Any, Any]):
    """A request whose `data` parameter is decoded strictly, straight into the handler's struct."""

    async def body(self) -> bytes:
        """Raises `ClientGone` where the client left before all of it had come, or was too slow."""
        try:
            async with asyncio.timeout(BODY_S):
                return await super().body()
        except TimeoutError:
            raise ClientGone(f"the body was not complete after {BODY_S:g} s") from None
        except InternalServerException:
            raise ClientGone("the client closed the connection before the body was complete") from None

    async def json(self) -> Any:
        if self.headers.get("content-encoding", "identity").strip().lower() != "identity":
            raise UnsupportedMediaType("the body is compressed", item="Content-Encoding", remedy="send it plain")
        media_type = self.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
        if media_type != "application/json" and not media_type.endswith("+json"):
            raise UnsupportedMediaType("the body must be JSON", item="Content-Type", remedy="send application/json")
        field = self.route_handler.parsed_data_field
        if field is None:
            raise Malformed("this address takes no body")
        try:
            return decode_body(await self.body(), field.annotation)
        except InvalidInput as error:
            if (on_record := self.route_handler.opt.get(REFUSED_BODY)) is not None:
                await on_record(self, error)
            raise


def decode_body(body: bytes, kind: type[T]) -> T:
    """Decode JSON into `kind`. Raises `Malformed` (no JSON) or `InvalidInput` (JSON that does not fit)."""
    try:
        if len(body) > MAX_FRAME:
            _require_small_frame(body)
        found = msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        reason, _, where = str(error).partition(" - at `$")
        field = _FIELD.search(reason)
        item = ".".join(filter(None, (where.strip("`."), field.group(1) if field else None)))
        raise InvalidInput(reason[:1].lower() + reason[1:], item=item or "body") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        if _holds_surrogate(body):
            raise InvalidInput("text holds a lone surrogate, which is no character", item="body") from None
        raise Malformed("the body is not JSON in UTF-8", item="body") from None
    if b"\\u0000" in body:
        _refuse_nul(msgspec.to_builtins(found), "body")
    _refuse_repeated(body)
    return found


def require_same_tenant(tenant: str | None, principal: Principal) -> None:
    """Raise `Forbidden` where a request names another tenant than its credential does."""
    if tenant is not None and tenant != principal.tenant:
        raise Forbidden("the request names another tenant than the credential", item="tenant")


def _require_small_frame(body: bytes) -> None:
    bulk = msgspec.json.decode(body, type=_Bulk)
    if len(body) - len(bytes(bulk.text)) - len(bytes(bulk.content_base64)) > MAX_FRAME:
        raise TooLarge(f"everything but the text is over {MAX_FRAME} bytes", item="body", remedy="send less metadata")


def _refuse_repeated(body: bytes) -> None:
    """A field given twice means one thing to this decoder and another to a proxy that checked the request before."""

    def once(pairs: list[tuple[str, Any]]) -> None:
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise InvalidInput("a field is given twice", item=name[:100])
            seen.add(name)

    try:
        json.loads(body, object_pairs_hook=once)
    except (ValueError, RecursionError):
        raise Malformed("the body is not JSON in UTF-8", item="body") from None


def _holds_surrogate(body: bytes) -> bool:
    """Whether `body` is JSON but for a lone surrogate."""
    try:
        json.dumps(json.loads(body), ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        return True
    except (ValueError, RecursionError):
        return False
    return False


def _refuse_nul(value: Any, where: str) -> None:
    if isinstance(value, str) and _NUL in value:
        raise InvalidInput("text holds a NUL character", item=where, remedy="remove it")
    if isinstance(value, dict):
        for key, inner in value.items():
            _refuse_nul(key, where)
            _refuse_nul(inner, key)
    elif isinstance(value, list):
        for inner in value:
            _refuse_nul(inner, where)
