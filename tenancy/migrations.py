"""Steps that bring the control plane's or a tenant's database from one schema version to the next; `Database` runs them
in one transaction.
"""

from __future__ import annotations

import secrets
import time
from typing import Any, Final

from sqlalchemy import DDL, Column, insert, literal, select, text
from sqlalchemy.engine import Connection
from sqlalchemy.schema import CreateColumn, CreateIndex, CreateTable

from tenancy import cache_schema, quality_schema, schema
from tenancy.database import Migration


def _add_columns(connection: Connection, *columns: Column[Any]) -> None:
    """`columns`, as today's tables have them, where the tables stand: on PostgreSQL in the schema of the connection."""
    for column in columns:
        definition = str(CreateColumn(column).compile(dialect=connection.dialect)).replace("%", "%%")
        added = DDL(f"ALTER TABLE %(fullname)s ADD COLUMN {definition}")  # type: ignore[no-untyped-call]
        connection.execute(added.against(column.table))


def _vectors_apart(connection: Connection) -> None:
    """Version 2: vectors in a table of their own, models and physical collections on record."""
    for table in (schema.models, schema.vectors, schema.collections):
        connection.execute(CreateTable(table))
        for index in table.indexes:
            connection.execute(CreateIndex(index))
    stored = connection.execute(select(schema.meta.c.value).where(schema.meta.c.key == "embedder")).scalar()
    if stored is not None:
        now = time.time()
        # Version 1 knew no other way to name a model than its fingerprint.
        values = {"id": 1, "spec": str(stored.get("name", "")), "fingerprint": stored, "created": now}
        connection.execute(insert(schema.models).values(values))
        connection.execute(
            insert(schema.collections).values(
                engine="faiss",
                physical=f"c_{secrets.token_hex(16)}",
                model_id=1,
                state="serving",
                applied=0,
                sealing=secrets.token_bytes(32),
                created=now,
            )
        )
        connection.execute(text("INSERT INTO vectors (chunk_id, model_id, vector) SELECT id, 1, vector FROM chunks"))
        connection.execute(schema.meta.delete().where(schema.meta.c.key == "embedder"))
    connection.execute(text("ALTER TABLE chunks DROP COLUMN vector"))


def _cache_evidence(connection: Connection) -> None:
    """Version 3: what is known of the correctness of semantic hits."""
    for table in (
        cache_schema.cache_evidence,
        cache_schema.cache_namespaces,
        cache_schema.cache_labelled,
        cache_schema.cache_judgements,
        cache_schema.cache_negatives,
        cache_schema.cache_feedback,
    ):
        connection.execute(CreateTable(table))
        for index in table.indexes:
            connection.execute(CreateIndex(index))


def _generation(connection: Connection) -> None:
    """Version 4: a tenant's own adapters and prompt templates."""
    for table in (schema.adapters, schema.templates):
        connection.execute(CreateTable(table))
        for index in table.indexes:
            connection.execute(CreateIndex(index))


def _intake(connection: Connection) -> None:
    """Version 5: what became of each item of an ingestion; chunks with keys, contexts and places; evaluations."""
    chunks = schema.chunks.c
    _add_columns(connection, chunks.key, chunks.context, chunks.place, chunks.turns, chunks.hidden)
    connection.execute(CreateTable(schema.items))
    for index in (*schema.items.indexes, *schema.documents.indexes):
        connection.execute(CreateIndex(index))
    known = schema.documents.c
    indexed = select(known.name, known.origin, literal("indexed"), known.warnings, known.version, known.updated)
    columns = ["name", "origin", "status", "warnings", "version", "seen"]
    connection.execute(insert(schema.items).from_select(columns, indexed))
    for table in (
        quality_schema.evaluation_sets,
        quality_schema.evaluations,
        quality_schema.evaluation_scores,
        quality_schema.question_days,
    ):
        connection.execute(CreateTable(table))
        for index in table.indexes:
            connection.execute(CreateIndex(index))


TENANT: Final[tuple[Migration, ...]] = (_vectors_apart, _cache_evidence, _generation, _intake)


def _files_on_record(connection: Connection) -> None:
    """Version 2: which files were made, and collections that are still to be dropped."""
    for table in (schema.files, schema.leftovers):
        connection.execute(CreateTable(table))


def _classes_of_keys(connection: Connection) -> None:
    """Version 3: an API key has a class of work; those that were made before are interactive."""
    _add_columns(connection, schema.api_keys.c.work)


CONTROL: Final[tuple[Migration, ...]] = (_files_on_record, _classes_of_keys)
