"""What every command and the server share: tenants, authentication, audit logs. Cheap to open: no model, no index."""

from __future__ import annotations

import os
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from audit.logs import AuditLogs
from audit.trail import AuditTrail
from service.settings import Settings, load_settings
from service.settings_reading import MASTER_KEY_VARIABLE
from tenancy.control import Tenants
from tenancy.database import ConnectionPools
from tenancy.errors import InvalidInput, Unavailable
from tenancy.identity import Authenticator
from tenancy.jwks import MAX_SET_BYTES
from tenancy.keyring import KEYRING_FILE, FileKeyring, KeyringStore
from tenancy.keys import MasterKey, load_master_key
from tenancy.pools import raise_limit
from tenancy.storage import Storage
from tenancy.throttle import Throttle
from tenancy.tokens import TokenVerifier

_FETCH_TIMEOUT_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Control:
    """The control plane of one data directory, opened by this process."""

    settings: Settings
    tenants: Tenants
    authenticator: Authenticator
    logs: AuditLogs
    trail: AuditTrail

    def close(self) -> None:
        """Write what the audit logs still hold, then close the databases."""
        self.logs.close()
        self.tenants.close()


def open_control(settings: Settings, master: MasterKey | None = None) -> Control:
    """Open the data directory. Raises `InvalidInput` with the remedy where there is no usable master key."""
    if master is None:
        master = master_key(settings)
    tenants = open_tenants(settings, master)
    tokens = TokenVerifier(settings.issuers, fetch=_fetch) if settings.issuers else None
    authenticator = Authenticator(tenants, tokens=tokens, throttle=Throttle(settings.throttle))
    logs = AuditLogs(tenants, deadline_s=settings.audit.deadline_s)
    return Control(settings, tenants, authenticator, logs, AuditTrail(logs))


def open_tenants(settings: Settings, master: MasterKey) -> Tenants:
    """The control plane alone, over files or over the server of `database.url`."""
    raise_limit()
    pools = ConnectionPools()
    if not settings.database.url:
        return Tenants(settings.data_path, master, pools=pools, environment=settings.environment)
    storage = _postgres(settings, pools)
    try:
        return Tenants(settings.data_path, master, pools=pools, storage=storage, environment=settings.environment)
    except BaseException:
        storage.close()
        raise


@contextmanager
def keyring_of(settings: Settings) -> Iterator[KeyringStore]:
    """The keyring alone, wherever it lies; to be read without the master key that opens it."""
    if not settings.database.url:
        yield FileKeyring(settings.data_path / KEYRING_FILE)
        return
    storage = _postgres(settings, ConnectionPools())
    try:
        yield storage.keyring
    finally:
        storage.close()


def _postgres(settings: Settings, pools: ConnectionPools) -> Storage:
    try:
        from tenancy.postgres_storage import PostgresStorage
    except ModuleNotFoundError:
        raise InvalidInput(
            "the PostgreSQL client is not installed", item="database.url", remedy="pip install strongroom[postgres]"
        ) from None
    return PostgresStorage(settings.database, settings.data_path, pools)


def open_from(config: Path | None) -> Control:
    """Open the data directory that `--config` and the environment name."""
    return open_control(load_settings(config))


def master_key(settings: Settings) -> MasterKey:
    """The master key from STRONGROOM_MASTER_KEY, else from its file."""
    return load_master_key(settings.master_key_path, os.environ.get(MASTER_KEY_VARIABLE))


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """An issuer's keys come from its own address, and from no other that it points to."""

    def redirect_request(self, *_: object, **__: object) -> None:
        return None


def _fetch(url: str) -> bytes:
    """The body of an issuer's key set. The scheme was checked with the issuer: https, or http on loopback."""
    opener = urllib.request.build_opener(_NoRedirect)
    try:
        with opener.open(url, timeout=_FETCH_TIMEOUT_S) as response:
            body: bytes = response.read(MAX_SET_BYTES + 1)
    except OSError as error:
        raise Unavailable("the issuer's keys cannot be fetched", item="jwks_url", remedy=type(error).__name__) from None
    return body
