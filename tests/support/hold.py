"""A process that holds a piece of work of a tenant: `python -m tests.support.hold DATA_DIR URL TENANT NAME`.

URL is empty for files. It writes "held" once it holds it, and goes on until its input ends or it is killed.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tenancy.database import ConnectionPools
from tenancy.storage import SqliteStorage, Storage
from tests.support.postgres import postgres_storage

data_dir, url, tenant_id, name = Path(sys.argv[1]), *sys.argv[2:]
storage: Storage = postgres_storage(url, data_dir) if url else SqliteStorage(data_dir, ConnectionPools())
with storage.exclusive(tenant_id, name, 10.0):
    print("held", flush=True)
    sys.stdin.read()
