"""A tenant's file of an older version becomes what a new file is, with its documents."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy import Connection, MetaData, Table, UniqueConstraint, func, select, text

from indexing import loading
from indexing.catalogue import serving
from indexing.embed import Fingerprint
from indexing.terms import pack, term_postings
from tenancy import cache_schema, credentials, migrations, schema
from tenancy.control import Tenants
from tenancy.credentials import NewKey
from tenancy.database import ConnectionPools, Database
from tenancy.errors import SchemaTooNew
from tenancy.identity import Authenticator
from tenancy.keys import MasterKey
from tenancy.storage import Place
from tenancy.tenant import DATA_FILE
from tests.support.postgres import fresh_database, postgres_storage

FINGERPRINT = '{"name":"by hand","revision":"1","dtype":"float32","dimension":4,"normalised":false,"window":512}'
VERSION_1 = (Path(__file__).parent / "tenant_v1.sql").read_text(encoding="utf-8")


def _rows(connection: Connection) -> None:
    """Two documents of version 1, one of them with two chunks."""
    for statement in VERSION_1.split(";\n"):
        connection.exec_driver_sql(statement)
    connection.exec_driver_sql("INSERT INTO epochs VALUES (1, 2, 2, 0, 2)")
    connection.exec_driver_sql("INSERT INTO meta VALUES ('embedder', ?)", (FINGERPRINT,))
    for document in (1, 2):
        connection.exec_driver_sql(
            "INSERT INTO documents VALUES (?, ?, 'sha256:1', 'a', 'text/plain', '{}', '', '[]', 0)",
            (document, f"d{document}"),
        )
    for chunk, document, ordinal in ((5, 1, 0), (6, 1, 1), (9, 2, 0)):
        vector = np.array([chunk, 0, 0, 1], dtype="<f4").tobytes()
        connection.exec_driver_sql(
            "INSERT INTO chunks VALUES (?, ?, ?, 0, 4, NULL, 'word', ?, ?)",
            (chunk, document, ordinal, vector, pack(term_postings("word"))),
        )


def _shape(connection: Connection) -> dict[str, Any]:
    """Columns and indexes of all tables, as far as a query can tell."""
    tables = connection.execute(text("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")).scalars()
    return {
        table: (
            connection.exec_driver_sql(f'SELECT name, type, "notnull", pk FROM pragma_table_info("{table}")').all(),
            connection.exec_driver_sql(f'SELECT name, "unique" FROM pragma_index_list("{table}") ORDER BY name').all(),
        )
        for table in tables.all()
        if not table.startswith("sqlite_")
    }


def test_version_1_becomes_today_s_with_its_vectors(tmp_path: Path) -> None:
    tenants = Tenants(tmp_path, MasterKey(bytes(32)))
    for name in ("old", "new"):
        tenants.create(name)
    old, new = (tenants.open(Authenticator(tenants).operator(name)) for name in ("old", "new"))
    pools = ConnectionPools()
    key = old.keys.purpose(f"file/{DATA_FILE}")
    with Database(old.directory / DATA_FILE, key, MetaData(), pools, seed=_rows).writing():
        pass
    pools.close()
    with old.reading() as view:
        found = serving(view)
        assert found is not None
        assert found.model.fingerprint == Fingerprint(
            name="by hand", revision="1", dtype="float32", dimension=4, normalised=False, window=512
        )
        (part,) = loading.load(view, found, 4).parts
        assert part.segment.chunk_ids.tolist() == [5, 6, 9]
        held = part.segment.vectors()
        assert held is not None
        assert held[:, 0].tolist() == [5, 6, 9]
        migrated = _shape(view._connection)
    with new.reading() as view:
        assert serving(view) is None
        assert migrated == _shape(view._connection)
    tenants.close()


EVIDENCE = (
    "cache_evidence",
    "cache_feedback",
    "cache_judgements",
    "cache_labelled",
    "cache_namespaces",
    "cache_negatives",
)

GENERATION = ("adapters", "templates")

INTAKE = ("items", "evaluation_sets", "evaluations", "evaluation_scores", "question_days")
ADDED_TO_CHUNKS = ("key", "context", "place", "turns", "hidden")


def _version_2() -> MetaData:
    """The tables of version 2: those of today without what later versions added."""
    before = MetaData()
    for table in schema.tenant.sorted_tables:
        if table.name == "chunks":
            columns = [column for column in table.columns if column.name not in ADDED_TO_CHUNKS]
            Table("chunks", before, *(column._copy() for column in columns), UniqueConstraint("document_id", "ordinal"))
        elif table.name not in (*EVIDENCE, *GENERATION, *INTAKE):
            copy = table.to_metadata(before)
            if table.name == "documents":
                copy.indexes.clear()
    return before


def _one_user(connection: Connection) -> None:
    connection.execute(schema.epochs.insert().values(one=1, acl=3, corpus=4, kv=5, changes=0))
    connection.execute(schema.users.insert().values(id="u_1", name="ana", created=0.0, disabled=False))


def _emptied(connection: Connection) -> None:
    """Today's version with what version 2 had, and a label of its own."""
    assert connection.execute(select(schema.users.c.name)).scalars().all() == ["ana"]
    assert connection.execute(select(schema.epochs.c.kv)).scalar_one() == 5
    connection.execute(
        cache_schema.cache_judgements.insert().values(
            at=0.0, template="t", ladder="l", namespace="n", purpose="uniform", label="same", reason="", entry="e"
        )
    )
    added = (
        cache_schema.cache_evidence,
        cache_schema.cache_namespaces,
        cache_schema.cache_negatives,
        cache_schema.cache_feedback,
    )
    for table in (*added, schema.adapters, schema.templates, schema.items):
        assert connection.execute(select(func.count()).select_from(table)).scalar_one() == 0


def test_version_2_becomes_today_s_with_empty_evidence(tmp_path: Path) -> None:
    pools = ConnectionPools()
    old = Database(tmp_path / "a", bytes(32), _version_2(), pools, seed=_one_user, migrations=migrations.TENANT[:1])
    with old.writing():
        pass
    new = Database(tmp_path / "a", bytes(32), schema.tenant, pools, migrations=migrations.TENANT)
    with new.writing() as connection:
        _emptied(connection)
    fresh = Database(tmp_path / "b", bytes(32), schema.tenant, pools, migrations=migrations.TENANT)
    with new.reading() as one, fresh.reading() as other:
        assert _shape(one) == _shape(other)
    # A program of version 2 leaves the file alone from now on.
    with pytest.raises(SchemaTooNew), old.reading():
        pass
    pools.close()


def test_version_2_becomes_today_s_on_postgresql(tmp_path: Path) -> None:
    place = Place("audit", "t_1", "data.sqlite")
    with fresh_database() as url:
        old, new = postgres_storage(url, tmp_path), postgres_storage(url, tmp_path)
        made = old.database(place, bytes(32), _version_2(), seed=_one_user, migrations=migrations.TENANT[:1])
        with made.writing():
            pass
        migrated = new.database(place, bytes(32), schema.tenant, migrations=migrations.TENANT)
        with migrated.writing() as connection:
            _emptied(connection)
        with pytest.raises(SchemaTooNew), made.reading():
            pass
        old.close()
        new.close()


def _without_classes() -> MetaData:
    """The control plane's tables as they were before API keys had a class of work."""
    before = MetaData()
    for table in schema.control.sorted_tables:
        if table.name == "api_keys":
            columns = [column._copy() for column in table.columns if column.name != "work"]
            Table("api_keys", before, *columns)
        else:
            table.to_metadata(before)
    return before


def _one_key(connection: Connection) -> None:
    tenant = {"id": "t_1", "name": "acme", "status": "active", "created": 0.0, "contract": {}}
    connection.execute(schema.tenants.insert().values(tenant))
    key = {"id": "k1", "tenant_id": "t_1", "user_id": "u_1", "user": "ana", "roles": ["reader"], "created": 0.0}
    connection.execute(_without_classes().tables["api_keys"].insert().values(key))
    connection.execute(schema.api_key_secrets.insert().values(key_id="k1", hash=bytes(32), created=0.0))


def _has_classes(connection: Connection) -> None:
    """Keys of before are interactive, and a new one has its class."""
    wanted = NewKey("t_1", "u_1", "ana", frozenset({"reader"}), 1.0, None, "batch")
    minted = credentials.add(connection, bytes(32), "test", wanted)
    assert [key.work for key in credentials.of_tenant(connection, "t_1")] == ["interactive", "batch"]
    found = credentials.find(connection, minted.key_id)
    assert found is not None
    assert (found.work, found.roles, found.created) == ("batch", ("reader",), 1.0)


def test_keys_of_before_are_interactive_and_new_ones_have_their_class(tmp_path: Path) -> None:
    pools, before = ConnectionPools(), _without_classes()
    old = Database(tmp_path / "a", bytes(32), before, pools, seed=_one_key, migrations=migrations.CONTROL[:1])
    with old.writing() as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM pragma_table_info('api_keys')").scalar() == 8
    new = Database(tmp_path / "a", bytes(32), schema.control, pools, migrations=migrations.CONTROL)
    fresh = Database(tmp_path / "b", bytes(32), schema.control, pools, migrations=migrations.CONTROL)
    with new.writing() as connection, fresh.reading() as empty:
        assert _shape(connection)["api_keys"] == _shape(empty)["api_keys"]
        _has_classes(connection)
    pools.close()


def test_keys_of_before_have_their_class_on_postgresql(tmp_path: Path) -> None:
    place = Place("audit", "t_1", "control.sqlite")
    with fresh_database() as url:
        old, new = postgres_storage(url, tmp_path), postgres_storage(url, tmp_path)
        made = old.database(place, bytes(32), _without_classes(), seed=_one_key, migrations=migrations.CONTROL[:1])
        with made.writing():
            pass
        migrated = new.database(place, bytes(32), schema.control, migrations=migrations.CONTROL)
        with migrated.writing() as connection:
            _has_classes(connection)
        old.close()
        new.close()
