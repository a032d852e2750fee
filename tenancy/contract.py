"""A tenant's contract: isolation tier, engine, embedding model, filterable metadata, limits. From a TOML file.

Every key has an effect, and an unknown one is refused with the nearest that is known: a promise to a customer that is
silently ignored is none.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, get_args, get_type_hints

import msgspec

from tenancy.billing import UsageTerms
from tenancy.errors import Corrupt, InvalidInput
from tenancy.fields import FIELD_TYPES, FieldType
from tenancy.limits import Limits, TenantLimits
from tenancy.names import nfc_name
from tenancy.objectives import Objectives

Tier = Literal["collection", "dedicated"]
EngineName = Annotated[str, msgspec.Meta(pattern="^[a-z0-9][a-z0-9_-]{0,62}$")]

KvSharing = Literal["domain", "user", "none"]
Mixing = Literal["allow", "separate"]
HiddenText = Literal["mark", "leave_out"]
Retention = Literal["184-days", "12-months", "6-years"]
PersonalKind = Literal["email", "phone", "iban", "card"]
TemplateName = Annotated[str, msgspec.Meta(pattern="^[a-z0-9][a-z0-9_-]{0,62}$")]
Phrase = Annotated[str, msgspec.Meta(min_length=2, max_length=200)]

MAX_FIELDS: Final = 64
"""Metadata fields of one contract."""

_LETTERS: Final = re.compile(r"[^\W_].*[^\W_]", re.DOTALL)
_FIELD_VALUES: Final[dict[FieldType, type | tuple[type, ...]]] = {
    "string": str, "integer": int, "number": (int, float), "boolean": bool,
}  # fmt: skip
_REMEDY: Final = "see configs/contracts/example.toml"


class GuardTerms(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """Guard rails around one tenant's answers; each verdict is on record, and a rail that fails refuses.

    `blocked` are topics by name with the words and phrases that belong to each; askers are told the name. `mask_input`
    and `mask_output` are kinds of personal data that the model, or the asker, does not see. `require_citation`
    withholds an answer of which no citation could be verified.
    """

    blocked: dict[Annotated[str, msgspec.Meta(min_length=1, max_length=60)], list[Phrase]] = {}
    mask_input: list[PersonalKind] = []
    mask_output: list[PersonalKind] = []
    require_citation: bool = False


class GenerationTerms(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """How this tenant's answers are generated.

    `pools` are names of the deployment's pools, all of one trust level, the first one's model answering where a
    request names none; left out, the deployment's routing by tier decides. `models` narrows what a request may name.
    With `fallback` a later pool takes over where one is away. `template` is the prompt template where a request names
    none. `mixing` says whether passages with different readers may stand in one prompt, `hidden` what becomes of
    text that nobody sees who opens the document: the prompt marks it, or does not hold it. With `declared_adapters` an
    adapter comes with a declaration of what it was trained on, or is refused.
    """

    pools: list[EngineName] | None = None
    models: list[Annotated[str, msgspec.Meta(min_length=1, max_length=200)]] | None = None
    fallback: bool = False
    max_output_tokens: Annotated[int, msgspec.Meta(ge=1)] | None = None
    template: TemplateName | None = None
    kv_sharing: KvSharing | None = None
    mixing: Mixing | None = None
    hidden: HiddenText | None = None
    declared_adapters: bool = False
    guards: GuardTerms = GuardTerms()


class AuditTerms(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """How long this tenant's audit records are kept at least; see `audit.retention`."""

    retention: Retention | None = None


class Boost(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """Passages of documents whose metadata `field` is `equals` are preferred by `by`, a share of the best score (put
    back, where it is negative); or those whose number in `field` is greater, by up to `newer`.
    """

    field: Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
    equals: str | int | float | bool | None = None
    by: Annotated[float, msgspec.Meta(ge=-1, le=1)] = 0.0
    newer: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None


class RetrievalTerms(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """What this tenant's questions find. `threshold` is the least strength of evidence that is answered from, in
    [0, 1]: below it the answer is "not in the documents that you may read". `rerank` false leaves out the deployment's
    reranking model. `boosts` prefer documents by their metadata.
    """

    top_k: Annotated[int, msgspec.Meta(ge=1, le=100)] | None = None
    mode: Literal["dense", "lexical", "hybrid"] | None = None
    threshold: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None
    rerank: bool = True
    boosts: Annotated[list[Boost], msgspec.Meta(max_length=16)] = []


class ChunkingTerms(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """How this tenant's documents are cut from their next ingestion on; see `indexing.chunk.Chunking`."""

    target_chars: Annotated[int, msgspec.Meta(ge=64, le=20_000)] | None = None
    overlap_chars: Annotated[int, msgspec.Meta(ge=0, le=5_000)] | None = None
    target_tokens: Annotated[int, msgspec.Meta(ge=16, le=8_000)] | None = None
    overlap_tokens: Annotated[int, msgspec.Meta(ge=0, le=2_000)] | None = None


class Contract(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True, weakref=True):
    """What was agreed with one tenant. A key that is left out leaves the choice to the deployment.

    `weight` is its share of pools and threads, relative to other tenants', where several wait.

    `tier` "collection" is a physical collection of its own at an engine that others use too; "dedicated" needs an
    engine that serves this tenant alone. `engine` is the name of one of the deployment's engines, `model` one of its
    embedding models. `metadata` are the fields that questions may filter by, with their types. `admission` takes the
    place of the deployment's limits, number by number. `generation` says what answers and with which guard rails,
    `retrieval` and `chunking` what questions find and how documents are cut.
    `audit.retention` is the class of the audit's records, `usage` how use is charged. `objectives` are targets that
    each server holds its windows against. `retention` says why and how long the audit log is kept when the tenant is
    deleted; the deletion certificate repeats it.
    """

    tier: Tier = "collection"
    weight: Annotated[int, msgspec.Meta(ge=1, le=100)] = 1
    engine: EngineName | None = None
    model: Annotated[str, msgspec.Meta(min_length=1, max_length=500)] | None = None
    metadata: dict[str, FieldType] = {}
    admission: TenantLimits = TenantLimits()
    generation: GenerationTerms = GenerationTerms()
    retrieval: RetrievalTerms = RetrievalTerms()
    chunking: ChunkingTerms = ChunkingTerms()
    audit: AuditTerms = AuditTerms()
    usage: UsageTerms = UsageTerms()
    objectives: Objectives = Objectives()
    retention: Annotated[str, msgspec.Meta(min_length=1, max_length=500)] | None = None

    def limits(self, deployment: TenantLimits) -> TenantLimits:
        """The limits that hold for this tenant."""
        own = self.admission
        return TenantLimits(
            tenant=_over(own.tenant, deployment.tenant),
            user=_over(own.user, deployment.user),
            key=_over(own.key, deployment.key),
            full=own.full or deployment.full,
            wait_s=own.wait_s or deployment.wait_s,
            away=own.away or deployment.away,
            roots=own.roots or deployment.roots,
        )

    def stored(self) -> dict[str, Any]:
        """As JSON for the control plane, without what is left to the deployment."""
        builtins: dict[str, Any] = msgspec.to_builtins(self)
        limits = msgspec.to_builtins(self.admission)
        given = {
            name: kept
            for name, value in limits.items()
            if (kept := _given(value) if isinstance(value, dict) else value) not in (None, {})
        }
        builtins.pop("admission", None)
        return builtins | ({"admission": given} if given else {})


def read_contract(path: Path) -> Contract:
    """The contract in a TOML file. Raises `InvalidInput` naming the file or the path of the key."""
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidInput("the contract cannot be read", item=str(path), remedy=str(error.strerror)) from None
    except RecursionError:
        raise InvalidInput("the contract is nested too deep", item=str(path), remedy=_REMEDY) from None
    except ValueError as error:
        # Not TOML, not UTF-8, or a number of more digits than Python reads.
        raise InvalidInput("the contract is not TOML", item=str(path), remedy=str(error)) from None
    return check_contract(found)


def check_contract(found: Mapping[str, Any]) -> Contract:
    """`found` as a contract. Raises `InvalidInput` whose item is the path of the key, as in "admission.user"."""
    for key, known in _unknown(found, Contract, ""):
        nearest = difflib.get_close_matches(key.rpartition(".")[2], [name.rpartition(".")[2] for name in known], n=1)
        place = key.rpartition(".")[0]
        remedy = (
            f"did you mean {f'{place}.' if place else ''}{nearest[0]}?" if nearest else f"known: {', '.join(known)}"
        )
        raise InvalidInput("a contract has no such key", item=key[:200], remedy=remedy)
    fields = found.get("metadata", {})
    checked = dict(found)
    if isinstance(fields, Mapping):
        checked["metadata"] = dict(_fields(fields))
    try:
        contract = msgspec.convert(checked, Contract)
    except msgspec.ValidationError as error:
        reason, _, where = str(error).partition(" - at `$.")
        item = where.rstrip("`") or "contract"
        raise InvalidInput(reason[:1].lower() + reason[1:], item=item, remedy=_REMEDY) from None
    for topic, phrases in contract.generation.guards.blocked.items():
        if not phrases or not all(_LETTERS.search(phrase) for phrase in phrases):
            raise InvalidInput(
                "a blocked topic needs phrases, each of two letters or digits at least",
                item=f"generation.guards.blocked.{topic}"[:200],
                remedy=_REMEDY,
            )
    for number, boost in enumerate(contract.retrieval.boosts):
        _check_boost(boost, contract.metadata, f"retrieval.boosts[{number}]")
    if contract.tier == "dedicated" and contract.engine is None:
        raise InvalidInput(
            "the dedicated tier needs an engine of its own",
            item="engine",
            remedy="name an engine whose settings have dedicated_to = this tenant",
        )
    return contract


def stored_contract(found: Mapping[str, Any], tenant: str) -> Contract:
    """A contract from the control plane. Raises `Corrupt` where this version cannot keep it: nothing is left out."""
    try:
        return check_contract(found)
    except InvalidInput as error:
        raise Corrupt(
            f"the tenant's contract cannot be kept by this version of the program: {error.item}: {error.reason}",
            item=tenant,
            remedy="use the version that wrote it, or `strongroom tenant contract set`",
        ) from None


def _fields(fields: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    if len(fields) > MAX_FIELDS:
        raise InvalidInput(f"a contract declares at most {MAX_FIELDS} fields", item="metadata", remedy=_REMEDY)
    seen: set[str] = set()
    for name, kind in fields.items():
        known = nfc_name(name, "field")
        if known in seen:
            raise InvalidInput("two fields have the same name", item=f"metadata.{known}", remedy="remove one")
        seen.add(known)
        if kind not in FIELD_TYPES:
            types = ", ".join(FIELD_TYPES)
            raise InvalidInput("a field has no such type", item=f"metadata.{known}", remedy=f"write one of {types}")
        yield known, kind


def _check_boost(boost: Boost, fields: Mapping[str, FieldType], item: str) -> None:
    """Raise `InvalidInput` for a boost without an effect, or of a field that is not declared with its type."""
    kind = fields.get(boost.field)
    if kind is None:
        raise InvalidInput("a boost needs a field that the contract declares", item=item, remedy=_REMEDY)
    if (boost.equals is None) == (boost.newer is None) or (boost.newer is not None and boost.by):
        raise InvalidInput("a boost has `equals` and `by`, or `newer`", item=item, remedy=_REMEDY)
    numeric = kind in {"integer", "number"}
    if not (numeric if boost.newer is not None else isinstance(boost.equals, _FIELD_VALUES[kind])) or (
        numeric and isinstance(boost.equals, bool)
    ):
        raise InvalidInput(f"the boost does not fit a field of the type {kind}", item=item, remedy=_REMEDY)


def _unknown(found: Mapping[str, Any], struct: type[msgspec.Struct], prefix: str) -> Iterator[tuple[str, list[str]]]:
    """Keys that `struct` does not have, with those that it has; tables inside of it likewise."""
    hints = get_type_hints(struct)
    for key, value in found.items():
        if key not in hints:
            yield prefix + key, [prefix + name for name in hints]
            continue
        for inner in (hints[key], *get_args(hints[key])):
            if isinstance(inner, type) and issubclass(inner, msgspec.Struct) and isinstance(value, Mapping):
                yield from _unknown(value, inner, f"{prefix}{key}.")


def _given(amounts: Mapping[str, Any]) -> dict[str, Any]:
    return {name: amount for name, amount in amounts.items() if amount is not None}


def _over(own: Limits, deployment: Limits) -> Limits:
    return Limits(
        **{
            name: chosen if (chosen := getattr(own, name)) is not None else getattr(deployment, name)
            for name in own.__struct_fields__
        }
    )
