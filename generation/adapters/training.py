"""What an adapter was trained on, as its maker declares it: a JSON file with one entry for each source.

    {"format": "strongroom-training-1", "sources": [
      {"tenant": "acme", "document": "hr/leave.md", "version": "sha256:...", "licence": "LicenseRef-acme"},
      {"dataset": "org/public-set", "version": "2024-06", "licence": "CC-BY-4.0"}]}

A source is a document of a tenant, in one version, or a data set from elsewhere. Another tenant's documents have no
place in a tenant's adapter: a declaration that names one is refused whole, and nothing permits it.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import msgspec

from generation.adapters.manifest import open_plain
from tenancy.errors import InvalidInput
from tenancy.names import MAX_DOCUMENT_NAME, document_name

FORMAT: Final = "strongroom-training-1"
FILE: Final = "training_data.json"
"""The name under which an adapter's folder brings its declaration along."""
MAX_FILE: Final = 32 << 20
"""Bytes."""
MAX_SOURCES: Final = 100_000

_REMEDY: Final = "see docs/operations/lineage.md"
_Name = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_DOCUMENT_NAME)]


class Source(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """`tenant` (name or id) with `document`, or `dataset`; `licence` as an SPDX expression or LicenseRef."""

    version: _Name
    licence: _Name
    tenant: _Name | None = None
    document: _Name | None = None
    dataset: _Name | None = None


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    format: str
    sources: Annotated[list[Source], msgspec.Meta(min_length=1, max_length=MAX_SOURCES)]


@dataclass(frozen=True, slots=True)
class Training:
    """A declaration that was read. `digest` is of its sources in canonical JSON, sorted, each once."""

    sources: tuple[Source, ...]
    digest: str

    @property
    def licences(self) -> tuple[str, ...]:
        return tuple(sorted({source.licence for source in self.sources}))

    @property
    def documents(self) -> int:
        """How many documents of a tenant, each counted once."""
        return len({source.document for source in self.sources if source.document is not None})


class ForeignTraining(InvalidInput):
    """A declaration that names other tenants. `foreign` are the sources that do, for whoever tells those."""

    code = "foreign-training-data"

    def __init__(self, training: Training, foreign: tuple[Source, ...]) -> None:
        places = "one source" if len(foreign) == 1 else f"{len(foreign)} sources"
        super().__init__(
            f"the training data are another tenant's in {places}",
            item="tenant",
            remedy="train it without them: no setting permits such an adapter",
        )
        self.training = training
        self.foreign = foreign


def read_training(path: Path) -> Training:
    """Read a declaration. Raises `InvalidInput` naming the place in the file, `TooLarge`."""
    with os.fdopen(open_plain(path, MAX_FILE), "rb") as file:
        data = file.read(MAX_FILE)
    try:
        found = msgspec.json.decode(data, type=_File)
    except msgspec.ValidationError as error:
        reason, _, where = str(error).partition(" - at `$.")
        item = where.rstrip("`") or path.name
        raise InvalidInput(reason[:1].lower() + reason[1:], item=item, remedy=_REMEDY) from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise InvalidInput("not JSON", item=path.name, remedy=_REMEDY) from None
    if found.format != FORMAT:
        raise InvalidInput(f"the format is not {FORMAT}", item="format", remedy=_REMEDY)
    return training_of(found.sources)


def training_of(sources: Iterable[Source]) -> Training:
    """The declaration of `sources`. Raises `InvalidInput`."""
    checked = {_checked(source, place) for place, source in enumerate(sources)}
    ordered = tuple(sorted(checked, key=lambda source: msgspec.json.encode(source, order="sorted")))
    digest = hashlib.sha256(msgspec.json.encode(ordered, order="sorted")).hexdigest()
    return Training(ordered, f"sha256:{digest}")


def require_own(training: Training, tenant: str, tenant_id: str) -> None:
    """Raise `ForeignTraining` unless every tenant named is this one, by its name or its id, to the letter."""
    foreign = tuple(source for source in training.sources if source.tenant not in (None, tenant, tenant_id))
    if foreign:
        raise ForeignTraining(training, foreign)


def _checked(source: Source, place: int) -> Source:
    """`source` with its names in normal form."""
    of_tenant = source.tenant is not None and source.document is not None and source.dataset is None
    elsewhere = source.dataset is not None and source.tenant is None and source.document is None
    if not (of_tenant or elsewhere):
        raise InvalidInput(
            "a source is a document of a tenant, or a data set", item=f"sources[{place}]", remedy=_REMEDY
        )
    given = {name: value for name, value in msgspec.structs.asdict(source).items() if value is not None}
    return Source(**{name: document_name(value, f"sources[{place}].{name}") for name, value in given.items()})
