"""A tenant's file of an older version becomes what a new file is, with its documents."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from sqlalchemy import Connection, MetaData, text

from indexing import loading
from indexing.catalogue import serving
from indexing.embed import Fingerprint
from indexing.terms import pack, term_postings
from tenancy.control import Tenants
from tenancy.database import ConnectionPools, Database
from tenancy.identity import Authenticator
from tenancy.keys import MasterKey
from tenancy.tenant import DATA_FILE

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


def test_version_1_becomes_version_2_with_its_vectors(tmp_path: Path) -> None:
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
