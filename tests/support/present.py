"""A process that is there: `python -m tests.support.present DATA_DIR URL` writes its id, and goes on until it ends.

URL is empty for files. Its audit log "t_1" is marked.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tenancy.database import ConnectionPools
from tenancy.storage import SqliteStorage, Storage
from tests.support.postgres import postgres_storage

data_dir, url = Path(sys.argv[1]), sys.argv[2]
storage: Storage = postgres_storage(url, data_dir) if url else SqliteStorage(data_dir, ConnectionPools())
presence = storage.presence()
presence.mark("t_1")
print(presence.id, flush=True)
sys.stdin.read()
