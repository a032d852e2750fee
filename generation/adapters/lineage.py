"""What a tenant's adapters were made of, on record for good: beside the audit log, so that it outlives the adapter, a
restored backup, and the tenant.

Rows are added and never changed. An adapter's row is durable before the one that lets it be used, so that there is none
without; a registration that then failed leaves a row of an adapter that never was. Declared later, by adding the same
files again, is another declaration beside the first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import JSON, Column, Float, Index, MetaData, Table, insert, select

from generation.adapters.manifest import Description
from generation.adapters.registry import Registered
from generation.adapters.training import Source, Training
from tenancy.storage import AnyDatabase
from tenancy.tenant import AuditFiles
from tenancy.types import Integer, Text

LINEAGE_FILE: Final = "lineage.sqlite"

metadata = MetaData()

lineage_adapters = Table(
    "lineage_adapters",
    metadata,
    Column("id", Text, primary_key=True),
    Column("name", Text, nullable=False),
    Column("base", Text, nullable=False),
    # As its maker names the base model, and in which revision where that is said.
    Column("made_for", Text, nullable=False),
    Column("base_revision", Text),
    Column("revision", Text, nullable=False),
    Column("rank", Integer, nullable=False),
    Column("modules", JSON, nullable=False),
    Column("registered", Float, nullable=False),
)

lineage_declarations = Table(
    "lineage_declarations",
    metadata,
    Column("adapter", Text, primary_key=True),
    Column("digest", Text, primary_key=True),
    Column("declared", Float, nullable=False),
)

lineage_sources = Table(
    "lineage_sources",
    metadata,
    Column("digest", Text, primary_key=True),
    Column("place", Integer, primary_key=True, autoincrement=False),
    Column("tenant", Text),
    Column("document", Text),
    Column("dataset", Text),
    Column("version", Text, nullable=False),
    Column("licence", Text, nullable=False),
)
Index("lineage_by_document", lineage_sources.c.document)

# Declarations of other tenants' adapters that named this one's documents; those adapters were refused.
lineage_refusals = Table(
    "lineage_refusals",
    metadata,
    Column("digest", Text, primary_key=True),
    Column("document", Text, primary_key=True),
    Column("version", Text, primary_key=True),
    Column("at", Float, nullable=False),
)


@dataclass(frozen=True, slots=True)
class Declaration:
    """What an adapter was said to be trained on. `declared` is UTC epoch seconds."""

    digest: str
    declared: float
    sources: tuple[Source, ...]


@dataclass(frozen=True, slots=True)
class Origin:
    """One adapter. `base` is the model of the pools that take it, `made_for` what the adapter's maker calls it."""

    id: str
    name: str
    base: str
    made_for: str
    base_revision: str | None
    revision: str
    rank: int
    modules: tuple[str, ...]
    registered: float
    declarations: tuple[Declaration, ...]


@dataclass(frozen=True, slots=True)
class Refused:
    """One document of this tenant in the declaration of an adapter of another one, which was refused."""

    digest: str
    document: str
    version: str
    at: float


def record(
    files: AuditFiles, adapter: Registered, description: Description, training: Training | None, now: float
) -> None:
    """Put an adapter on record, and its declaration where there is one; what is there already stays."""
    with _database(files).writing() as connection:
        known = select(lineage_adapters.c.id).where(lineage_adapters.c.id == adapter.id)
        if connection.execute(known).first() is None:
            connection.execute(
                insert(lineage_adapters).values(
                    id=adapter.id, name=adapter.name, base=adapter.base, made_for=description.base,
                    base_revision=description.base_revision, revision=adapter.revision, rank=adapter.rank,
                    modules=list(adapter.modules), registered=now,
                )
            )  # fmt: skip
        if training is None:
            return
        said = {"adapter": adapter.id, "digest": training.digest}
        if connection.execute(select(lineage_declarations).filter_by(**said)).first() is not None:
            return
        stored = select(lineage_sources.c.place).where(lineage_sources.c.digest == training.digest).limit(1)
        if connection.execute(stored).first() is None:
            connection.execute(insert(lineage_sources), _rows(training))
        connection.execute(insert(lineage_declarations).values(**said, declared=now))


def record_refusal(files: AuditFiles, training: Training, sources: Iterable[Source], now: float) -> int:
    """Put on record that another tenant's adapter was refused whose declaration names these documents of this one;
    returns how many there are. What is there already stays.
    """
    named = sorted({(source.document or "", source.version) for source in sources})
    with _database(files).writing() as connection:
        mine = select(lineage_refusals).where(lineage_refusals.c.digest == training.digest)
        there = {(row.document, row.version) for row in connection.execute(mine)}
        rows = [
            {"digest": training.digest, "document": document, "version": version, "at": now}
            for document, version in named
            if (document, version) not in there
        ]
        if rows:
            connection.execute(insert(lineage_refusals), rows)
    return len(named)


def origins(files: AuditFiles) -> tuple[Origin, ...]:
    """Every adapter that the tenant ever had since lineage is kept, oldest first, with all that was declared."""
    with _database(files).reading() as connection:
        rows = connection.execute(
            select(lineage_adapters).order_by(lineage_adapters.c.registered, lineage_adapters.c.id)
        ).all()
        said = connection.execute(
            select(lineage_declarations).order_by(lineage_declarations.c.declared, lineage_declarations.c.digest)
        ).all()
        sources: dict[str, list[Source]] = {row.digest: [] for row in said}
        ordered = select(lineage_sources).order_by(lineage_sources.c.digest, lineage_sources.c.place)
        for row in connection.execute(ordered):
            sources.setdefault(row.digest, []).append(_source(row))
    declared: dict[str, list[Declaration]] = {row.id: [] for row in rows}
    for row in said:
        declared[row.adapter].append(Declaration(row.digest, row.declared, tuple(sources[row.digest])))
    return tuple(_origin(row, declared[row.id]) for row in rows)


def refusals(files: AuditFiles) -> tuple[Refused, ...]:
    """Documents of this tenant that declarations of other tenants' adapters named, oldest first."""
    with _database(files).reading() as connection:
        rows = connection.execute(
            select(lineage_refusals).order_by(
                lineage_refusals.c.at, lineage_refusals.c.document, lineage_refusals.c.version
            )
        ).all()
    return tuple(Refused(row.digest, row.document, row.version, row.at) for row in rows)


def _database(files: AuditFiles) -> AnyDatabase:
    return files.database(LINEAGE_FILE, metadata)


def _rows(training: Training) -> list[dict[str, Any]]:
    return [
        {
            "digest": training.digest, "place": place, "tenant": source.tenant, "document": source.document,
            "dataset": source.dataset, "version": source.version, "licence": source.licence,
        }
        for place, source in enumerate(training.sources)
    ]  # fmt: skip


def _source(row: Any) -> Source:
    return Source(
        tenant=row.tenant, document=row.document, dataset=row.dataset, version=row.version, licence=row.licence
    )


def _origin(row: Any, declarations: Sequence[Declaration]) -> Origin:
    return Origin(
        id=row.id,
        name=row.name,
        base=row.base,
        made_for=row.made_for,
        base_revision=row.base_revision,
        revision=row.revision,
        rank=row.rank,
        modules=tuple(row.modules),
        registered=row.registered,
        declarations=tuple(declarations),
    )
