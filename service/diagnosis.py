"""The checks of `strongroom doctor`: what each found and, where something is wrong, what to do about it."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import secrets
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import msgspec
from sqlalchemy import MetaData

from service.control import keyring_of, master_key, open_tenants
from service.engine_check import examine_engines
from service.settings import Settings, known_keys
from service.settings_reading import MASTER_KEY_VARIABLE
from service.tariff import open_tariff
from service.tenant_check import examine_tenants
from tenancy.database import ConnectionPools, Database
from tenancy.errors import Conflict, StrongroomError
from tenancy.keyring import master_of
from tenancy.keys import create_master_key
from tenancy.pools import connections_within, raise_limit

State = Literal["ok", "note", "wrong"]

_CONTROL: Final = "control.sqlite"
_LEAST_FREE: Final = 1 << 30
_FEW_DESCRIPTORS: Final = 4_096
_SHOWN: Final = 3
FILES_A_TENANT: Final = 4
"""Documents, remembered answers, audit log, keys of its subjects."""

_SLOW_FSYNC_MS: Final = 20.0
_PROBES: Final = 20


@dataclass(frozen=True, slots=True)
class Finding:
    check: str
    state: State
    finding: str
    remedy: str | None = None


def examine(settings: Settings) -> list[Finding]:
    """Run every check; one that fails does not keep the others from running."""
    checks: list[tuple[str, Callable[[Settings], Finding]]] = [
        ("master key", _master_key),
        ("data directory", _data_directory),
        ("control plane", _control_plane),
        ("sqlite", _sqlite),
        ("database", _database),
        ("fsync", _fsync),
        ("descriptors", _descriptors),
        ("embedding model", _model),
        ("engines", _engines),
        ("cache", _cache),
        ("limits", _limits),
        ("prices", _prices),
        *([("adapters", _adapters)] if settings.generation.adapters_dir else []),
    ]
    rows = [_guarded(name, check, settings) for name, check in checks]
    return [*rows, *_pools(settings), *_server_engines(settings)]


def create_key(settings: Settings) -> Path:
    """Create the master key file. Raises `AlreadyExists`, or `Conflict` where data of another key is there."""
    if not settings.master_key_path.exists():
        with keyring_of(settings) as keyring:
            written = (settings.data_path / _CONTROL).exists() or master_of(keyring) is not None
        if written:
            what, setting = ("database", "database.url") if settings.database.url else ("data directory", "data_dir")
            raise Conflict(
                f"the {what} was written under another master key, which is not at its place",
                item=setting if settings.database.url else str(settings.data_path),
                remedy=f"put that key back at {settings.master_key_path}, or choose an empty {what} ({setting})",
            )
    create_master_key(settings.master_key_path)
    return settings.master_key_path


def setting_values(settings: Settings) -> list[dict[str, Any]]:
    """Every setting with its present value; there is no secret among them."""
    present: dict[str, Any] = msgspec.to_builtins(settings)
    rows = []
    for key in known_keys():
        value: Any = present
        for part in key.split("."):
            value = value.get(part) if isinstance(value, dict) else None
        if value is not None or "issuers." not in key:
            rows.append({"setting": key, "value": value})
    return rows


def _guarded(name: str, check: Callable[[Settings], Finding], settings: Settings) -> Finding:
    try:
        return check(settings)
    except StrongroomError as error:
        return Finding(name, "wrong", str(StrongroomError(error.reason, item=error.item)), error.remedy)
    except OSError as error:
        return Finding(name, "wrong", f"{error.strerror}: {error.filename}", "check the path and its permissions")


def _prices(settings: Settings) -> Finding:
    tariff = open_tariff(settings.prices)
    return Finding(
        "prices", "ok", f"{tariff.book.at(tariff.plan, time.time()).id}; plans: {', '.join(tariff.book.plans)}"
    )


def _adapters(settings: Settings) -> Finding:
    """The folder of tenants' adapters, as this product sees it; what the engines see is seen at the first load."""
    name, root = "adapters", settings.generation.adapters_path
    if root is None or not root.is_dir():
        return Finding(name, "wrong", f"{root} is no folder", "make it, and let the engines see it under this path")
    if not os.access(root, os.W_OK | os.X_OK):
        return Finding(name, "wrong", f"{root} cannot be written", "give it to this user, and to the engines' group")
    mode = root.stat().st_mode & 0o777
    if mode & 0o007:
        remedy = f"chmod o= {root}, and let the engines read it by their group"
        return Finding(name, "wrong", f"{root} is open to every user of this machine (mode {mode:o})", remedy)
    pools = sorted(pool for pool, terms in settings.generation.pools.items() if terms.max_adapters)
    if not pools:
        return Finding(name, "note", f"{root}, and no pool takes adapters", "set max_adapters of a pool")
    return Finding(name, "ok", f"{root}, for {', '.join(pools)}")


def _master_key(settings: Settings) -> Finding:
    name, path = "master key", settings.master_key_path
    encoded = os.environ.get(MASTER_KEY_VARIABLE)
    master_key(settings)
    if encoded is not None:
        return Finding(name, "ok", f"from {MASTER_KEY_VARIABLE}")
    if settings.data_path.resolve() in path.resolve().parents:
        return Finding(
            name, "wrong", f"{path} lies inside the data directory", "move it: a copy of the data must open nothing"
        )
    mode = path.stat().st_mode & 0o777
    if mode & 0o077:
        return Finding(name, "wrong", f"{path} can be read by others (mode {mode:o})", f"chmod 600 {path}")
    return Finding(name, "ok", str(path))


def _data_directory(settings: Settings) -> Finding:
    name, path = "data directory", settings.data_path
    path.mkdir(parents=True, exist_ok=True, mode=0o700)
    with tempfile.NamedTemporaryFile(dir=path):
        pass
    mode = path.stat().st_mode & 0o777
    if mode & 0o077:
        return Finding(name, "wrong", f"{path} is open to others (mode {mode:o})", f"chmod 700 {path}")
    free = shutil.disk_usage(path).free
    if free < _LEAST_FREE:
        return Finding(name, "wrong", f"{free >> 20} MiB free on {path}", "make room: a full disk stops the audit log")
    return Finding(name, "ok", f"{path}, {free >> 30} GiB free")


def _control_plane(settings: Settings) -> Finding:
    if not settings.database.url and not (settings.data_path / _CONTROL).exists():
        return Finding("control plane", "note", "no tenant yet", "strongroom tenant create NAME")
    tenants = open_tenants(settings, master_key(settings))
    try:
        every, active = tenants.count()
        looked, refused = examine_tenants(settings, tenants)
    finally:
        tenants.close()
    here = f"{active} of {every} tenants active"
    if not refused:
        return Finding("control plane", "ok", here + (f", the first {looked} looked at" if looked < active else ""))
    shown = "; ".join(refused[:_SHOWN]) + (f"; and {len(refused) - _SHOWN} more" if len(refused) > _SHOWN else "")
    return Finding(
        "control plane",
        "wrong",
        f"{here}, {len(refused)} cannot be served: {shown}",
        "correct collections.engines, embedding.model, embedding.also or prices, or the contract; a damaged file: "
        "docs/operations/backup.md",
    )


def _sqlite(settings: Settings) -> Finding:
    """Commits of an encrypted file, as ingestion and audit make them."""
    pools = ConnectionPools()
    with tempfile.TemporaryDirectory(dir=settings.data_path, prefix=".doctor-") as folder:
        database = Database(Path(folder) / "probe.sqlite", secrets.token_bytes(32), MetaData(), pools)
        with database.writing() as connection:
            connection.exec_driver_sql("CREATE TABLE probe (value INTEGER)")
            version = connection.exec_driver_sql("SELECT sqlite_version()").scalar_one()
            cipher = connection.exec_driver_sql("PRAGMA cipher_version").scalar()
        times = []
        for value in range(_PROBES):
            begun = time.perf_counter()
            with database.writing() as connection:
                connection.exec_driver_sql("INSERT INTO probe VALUES (?)", (value,))
            times.append((time.perf_counter() - begun) * 1000)
        pools.close()
    if not cipher:
        return Finding("sqlite", "wrong", f"SQLite {version} without encryption", "install sqlcipher3 again")
    return Finding("sqlite", "ok", f"SQLite {version}, SQLCipher {cipher}, {statistics.median(times):.1f} ms a commit")


def _database(settings: Settings) -> Finding:
    """The PostgreSQL server, if there is one: what it is, how far away, and whether what it acknowledges is on disk."""
    name = "database"
    if not settings.database.url:
        return Finding(name, "ok", "files below data_dir")
    from tenancy.postgres import Server

    server = Server(settings.database)
    try:
        about = server.examine(_PROBES)
    finally:
        server.close()
    finding = f"PostgreSQL {about.version}, {about.round_trip_ms:.1f} ms a statement, TLS {about.tls or 'off'}"
    if about.unsafe:
        return Finding(
            name, "wrong", f"{finding}; {about.unsafe} is off", f"set {about.unsafe} = on: a crash would lose records"
        )
    wanted = settings.database.pool_size + 2 * max(2, settings.database.pool_size // 4)
    if about.free_connections < wanted:
        return Finding(
            name,
            "note",
            f"{finding}; {about.free_connections} connections left, the pools may want {wanted}",
            "raise max_connections of the server, or lower database.pool_size",
        )
    return Finding(name, "ok", f"{finding}, {about.free_connections} connections left")


def _fsync(settings: Settings) -> Finding:
    times = []
    with tempfile.TemporaryFile(dir=settings.data_path) as file:
        for _ in range(_PROBES):
            file.write(b"x" * 4096)
            file.flush()
            begun = time.perf_counter()
            os.fsync(file.fileno())
            times.append((time.perf_counter() - begun) * 1000)
    median = statistics.median(times)
    finding = f"{median:.2f} ms an fsync; it bounds how fast a single question can be recorded"
    if median > _SLOW_FSYNC_MS:
        return Finding("fsync", "note", finding, "put data_dir on a local solid-state disk")
    return Finding("fsync", "ok", finding)


def _descriptors(_settings: Settings) -> Finding:
    """A server raises the limit as far as it may, so the hard one counts."""
    name, allowed = "descriptors", raise_limit()
    connections = connections_within(allowed)
    finding = (
        f"{allowed} open files allowed: {connections} connections to databases, so the files of "
        f"{connections // FILES_A_TENANT} tenants stay open and others take turns"
    )
    if allowed < _FEW_DESCRIPTORS:
        return Finding(name, "note", finding, "raise the hard limit (ulimit -Hn, LimitNOFILE=) for many tenants")
    return Finding(name, "ok", finding)


def _model(settings: Settings) -> Finding:
    from indexing.embedders.hashing import PREFIX
    from indexing.embedders.model_files import find_model

    name, model = "embedding model", settings.embedding.model
    if model.startswith(PREFIX):
        return Finding(
            name, "note", f"{model}: words are hashed, meanings are not known", "choose a model for real use"
        )
    if importlib.util.find_spec("sentence_transformers") is None:
        return Finding(name, "wrong", "sentence-transformers is not installed", "install it")
    found = find_model(model)
    return Finding(name, "ok", f"{found.name}, {found.revision[:19]}, digest checked")


def _engines(_settings: Settings) -> Finding:
    present = {
        name: importlib.metadata.version(name)
        for name in ("faiss-cpu", "faiss-gpu", "qdrant-client", "pymilvus", "redis")
        if _installed(name)
    }
    faiss = [name for name in present if name.startswith("faiss")]
    if len(faiss) != 1:
        found = "both faiss-cpu and faiss-gpu are installed" if faiss else "faiss is not installed"
        return Finding("engines", "wrong", found, "install exactly one: pip install 'strongroom[cpu]'")
    return Finding("engines", "ok", ", ".join(f"{name} {version}" for name, version in present.items()))


def _server_engines(settings: Settings) -> list[Finding]:
    try:
        found = examine_engines(settings)
    except StrongroomError as error:
        return [Finding("engines", "wrong", str(StrongroomError(error.reason, item=error.item)), error.remedy)]
    return [Finding(f"engine {one.engine}", one.state, one.finding, one.remedy) for one in found]


def _limits(settings: Settings) -> Finding:
    from service.counters_check import examine

    well, found, remedy = examine(settings)
    return Finding("limits", "ok" if well else "wrong", found, remedy)


def _cache(settings: Settings) -> Finding:
    from service.cache_check import examine

    well, found, remedy = examine(settings)
    return Finding("cache", "ok" if well else "wrong", found, remedy)


def _pools(settings: Settings) -> list[Finding]:
    from service.generator_check import examine_pools

    try:
        found = examine_pools(settings)
    except StrongroomError as error:
        return [Finding("generator", "wrong", str(StrongroomError(error.reason, item=error.item)), error.remedy)]
    return [Finding(one.check, one.state, one.finding, one.remedy) for one in found]


def _installed(name: str) -> bool:
    try:
        importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True
