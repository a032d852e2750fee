"""kill -9 during ingestion: nothing half is there afterwards, and the next run completes it."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from sqlalchemy import select

from indexing.collections.open import OpenCollections
from indexing.embed import EmbeddingSettings, load_embedder
from tenancy.domain import permission_domain
from tenancy.identity import Principal
from tenancy.schema import acl, chunks, documents, versions
from tests.support.people import Company

WORKER = """
import sys
from pathlib import Path
from indexing import batch
from indexing.acl_rules import Decision
from indexing.embed import EmbeddingSettings, load_embedder
from indexing.ingest import Pipeline
from tenancy.acl import AccessList
from tenancy.control import Tenants
from tenancy.identity import Authenticator
from tenancy.keys import MasterKey

batch.BATCH_CHUNKS = 6
tenants = Tenants(Path(sys.argv[1]), MasterKey(bytes(range(32))))
tenant = tenants.open(Authenticator(tenants).operator("acme"))
pipeline = Pipeline(load_embedder(EmbeddingSettings(model="hashing:64")))
print("ready", flush=True)
decision = Decision(AccessList.of(["tenant"]), by="test")
for outcome in batch.ingest_paths(tenant, pipeline, [Path(sys.argv[2])], lambda _: decision, lambda: None, prune=True):
    print(outcome.document, outcome.status, outcome.change, flush=True)
"""
ROOT = Path(__file__).parents[2]


def write_files(folder: Path, generation: int) -> None:
    """Twenty documents of several chunks; each generation changes all of them, and drops one of the last."""
    for path in folder.glob("*.txt"):
        path.unlink()
    for number in range(20):
        if number != generation:
            (folder / f"{number:02}.txt").write_text(f"generation-{generation} of document {number}. " * 60)


def start(data: Path, folder: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WORKER, str(data), str(folder)]
    worker = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert worker.stdout is not None
    assert worker.stdout.readline() == "ready\n"
    return worker


def check_whole(company: Company, reader: Principal) -> set[str]:
    """Every document has all the chunks of one version, its access list, and is found as that; returns versions."""
    embedder = load_embedder(EmbeddingSettings(model="hashing:64"))
    with OpenCollections(embedder.fingerprint, 1 << 28).opened(company.handle) as (view, snapshot):
        domain = permission_domain(reader, view)
        found = snapshot.dense(domain, np.ones(64, dtype=np.float32), 10_000)
        rows = view.execute(select(chunks)).all()
        live = view.execute(select(documents)).all()
        recorded = view.execute(select(versions).where(versions.c.retired.is_(None))).all()
        listed = set(view.execute(select(acl.c.document_id)).scalars())
    assert sorted(scored.chunk_id for scored in found) == sorted(row.id for row in rows)
    assert listed == {document.id for document in live} == {row.document_id for row in recorded}
    for document in live:
        mine = sorted((row for row in rows if row.document_id == document.id), key=lambda row: row.ordinal)
        [version] = [row for row in recorded if row.document_id == document.id]
        assert version.version == document.version
        assert [row.ordinal for row in mine] == list(range(version.chunks))
        assert len({word for row in mine for word in row.text.split() if word.startswith("generation-")}) == 1
    return {document.version for document in live}


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_a_killed_ingestion_leaves_whole_documents_and_is_completed(acme: Company, tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    reader = acme.principal("ana")
    folder = tmp_path / "files"
    folder.mkdir()
    for generation in range(2):
        write_files(folder, generation)
        worker = start(tmp_path / "data", folder)
        assert worker.stdout is not None
        for _ in range(dice.randrange(0, 19)):
            worker.stdout.readline()
        worker.send_signal(signal.SIGKILL)
        worker.wait()
        worker.stdout.close()
        check_whole(acme, reader)
    worker = start(tmp_path / "data", folder)
    output, _ = worker.communicate()
    assert worker.returncode == 0
    assert " failed" not in output
    assert len(check_whole(acme, reader)) == 19
    worker = start(tmp_path / "data", folder)
    output, _ = worker.communicate()
    assert set(output.split()) & {"unchanged", "indexed", "added", "updated", "removed", "none"} == {
        "unchanged",
        "none",
    }
