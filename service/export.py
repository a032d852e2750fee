"""A tenant's data in open formats, of one moment, in bounded memory: JSON Lines, and Parquet for the vectors.

The folder is there when it is complete, with a manifest of counts and digests. Nothing in it is encrypted.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec
from sqlalchemy import Select, select

from tenancy import directory as groups_of
from tenancy import schema
from tenancy.acl import get_access_list
from tenancy.errors import AlreadyExists, InvalidInput, Unavailable
from tenancy.keyring import sync_directory
from tenancy.tenant import ReadView, TenantHandle

VERSION: Final = 1
_ROWS: Final = 1_000
_VECTORS: Final = "vectors.parquet"


def export_tenant(tenant: TenantHandle, target: Path, *, vectors: bool = True) -> dict[str, Any]:
    """Write all of `tenant` to the new folder `target`; returns the counts.

    For those who administer documents: access lists do not apply. Raises `AlreadyExists`, `InvalidInput` where
    pyarrow is missing, `Unavailable` where the disk does not take it.
    """
    if vectors and importlib.util.find_spec("pyarrow") is None:
        raise InvalidInput(
            "vectors are written as Parquet, which needs pyarrow",
            item="export",
            remedy="pip install 'strongroom[parquet]', or leave the vectors out with --no-vectors",
        )
    if target.exists():
        raise AlreadyExists("the folder is there already", item=str(target), remedy="choose another name")
    partial = target.with_name(f".{target.name}.{secrets.token_hex(6)}.partial")
    try:
        partial.mkdir(parents=True, mode=0o700)
        with tenant.reading() as view:
            counts = {name: _lines(partial / f"{name}.jsonl", rows(view)) for name, rows in _TABLES.items()}
            if vectors:
                counts["vectors"] = _parquet(partial / _VECTORS, view)
            _manifest(partial, tenant, view, counts)
        sync_directory(partial)
        try:
            partial.rename(target)
        except OSError:
            raise AlreadyExists("the folder is there already", item=str(target), remedy="choose another name") from None
        sync_directory(target.absolute().parent)
    except BaseException as error:
        shutil.rmtree(partial, ignore_errors=True)
        if isinstance(error, OSError):
            raise Unavailable("the export cannot be written", item=str(target), remedy=str(error.strerror)) from error
        raise
    return {"tenant": tenant.name, "folder": str(target), **counts}


def _streamed(view: ReadView, query: Select[Any]) -> Iterator[Any]:
    yield from view.execute(query.execution_options(yield_per=_ROWS))


def _documents(view: ReadView) -> Iterator[dict[str, Any]]:
    columns = schema.documents.c
    for row in _streamed(view, select(schema.documents).order_by(columns.id)):
        access = get_access_list(view, row.id)
        yield {
            "id": row.id,
            "name": row.name,
            "version": row.version,
            "title": row.title,
            "media_type": row.media_type,
            "metadata": row.metadata,
            "warnings": row.warnings,
            "updated": row.updated,
            "allow": sorted(access.allow),
            "deny": sorted(access.deny),
        }


def _chunks(view: ReadView) -> Iterator[dict[str, Any]]:
    columns = schema.chunks.c
    query = (
        select(columns.id, schema.documents.c.name, schema.documents.c.version, columns.ordinal, columns.start)
        .add_columns(columns.end, columns.heading, columns.text, columns.key, columns.context, columns.place)
        .add_columns(columns.hidden)
        .join(schema.documents, schema.documents.c.id == columns.document_id)
        .order_by(columns.id)
    )
    for row in _streamed(view, query):
        yield {
            "id": row.id,
            "document": row.name,
            "version": row.version,
            "ordinal": row.ordinal,
            "start": row.start,
            "end": row.end,
            "heading": row.heading,
            "text": row.text,
            "key": row.key,
            "context": row.context,
            "place": row.place,
            "hidden": row.hidden,
        }


def _versions(view: ReadView) -> Iterator[dict[str, Any]]:
    columns = schema.versions.c
    for row in _streamed(view, select(schema.versions).order_by(columns.document_id, columns.ordinal)):
        yield dict(row._mapping)


def _users(view: ReadView) -> Iterator[dict[str, Any]]:
    for row in _streamed(view, select(schema.users).order_by(schema.users.c.name)):
        yield {"name": row.name, "created": row.created, "disabled": row.disabled}


def _groups(view: ReadView) -> Iterator[dict[str, Any]]:
    for name, members in groups_of.list_groups(view).items():
        yield {"name": name, "members": members}


_TABLES: Final[dict[str, Callable[[ReadView], Iterator[dict[str, Any]]]]] = {
    "documents": _documents,
    "chunks": _chunks,
    "versions": _versions,
    "users": _users,
    "groups": _groups,
}


def _lines(path: Path, rows: Iterator[dict[str, Any]]) -> int:
    count = 0
    with path.open("xb") as file:
        for row in rows:
            file.write(msgspec.json.encode(row) + b"\n")
            count += 1
        file.flush()
        os.fsync(file.fileno())
    return count


def _parquet(path: Path, view: ReadView) -> int:
    """One row a vector: chunk, model, and little-endian float32 as a list."""
    import numpy as np
    import pyarrow as pa  # type: ignore[import-untyped]
    import pyarrow.parquet as pq  # type: ignore[import-untyped]

    kinds = pa.schema([("chunk_id", pa.int64()), ("model", pa.string()), ("vector", pa.list_(pa.float32()))])
    columns, models = schema.vectors.c, schema.models.c
    query = (
        select(columns.chunk_id, models.spec, columns.vector)
        .join(schema.models, models.id == columns.model_id)
        .order_by(columns.chunk_id, columns.model_id)
    )
    count = 0
    with pq.ParquetWriter(path, kinds) as writer:
        for rows in view.execute(query.execution_options(yield_per=_ROWS)).partitions():
            found = {
                "chunk_id": [row.chunk_id for row in rows],
                "model": [row.spec for row in rows],
                "vector": [np.frombuffer(row.vector, dtype="<f4") for row in rows],
            }
            writer.write_table(pa.table(found, schema=kinds))
            count += len(rows)
    with path.open("rb") as file:
        os.fsync(file.fileno())
    return count


def _manifest(folder: Path, tenant: TenantHandle, view: ReadView, counts: dict[str, int]) -> None:
    files = {}
    for path in sorted(folder.iterdir()):
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        files[path.name] = {"bytes": path.stat().st_size, "sha256": digest, "rows": counts[path.name.partition(".")[0]]}
    made = datetime.fromtimestamp(time.time(), UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    manifest = {
        "format": "strongroom export",
        "version": VERSION,
        "tenant": tenant.name,
        "tenant_id": tenant.tenant_id,
        "made": made,
        "epochs": {"acl": view.epochs.acl, "corpus": view.epochs.corpus},
        "files": files,
    }
    with (folder / "manifest.json").open("xb") as file:
        file.write(msgspec.json.format(msgspec.json.encode(manifest)) + b"\n")
        file.flush()
        os.fsync(file.fileno())
