"""The deployment's engines by name: connected when first needed, and used by none but the tenants that may."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from indexing.catalogue import EMBEDDED
from indexing.engine import Engine
from tenancy.errors import EngineUnavailable, InvalidInput
from tenancy.tenant import TenantHandle

Connect = Callable[[], Engine]


class Engines(Mapping[str, Engine]):
    """Server engines by name; `default` is where a tenant is put whose contract names none, `dedicated` says which
    engine serves which tenant alone. Safe from any number of threads.

    An engine that cannot be connected is `Unavailable` to those who need it, and nothing to the others.
    """

    def __init__(
        self, connect: Mapping[str, Connect], *, default: str = EMBEDDED, dedicated: Mapping[str, str] | None = None
    ) -> None:
        self.default: Final = default
        self.dedicated: Final = dict(dedicated or {})
        self._connect = dict(connect)
        self._connected: dict[str, Engine] = {}
        self._lock = threading.Lock()

    @classmethod
    def connected(cls, engines: Mapping[str, Engine]) -> Engines:
        """Engines that are there already, each for every tenant."""
        return cls({name: (lambda engine=engine: engine) for name, engine in engines.items()})  # type: ignore[misc]

    def __getitem__(self, name: str) -> Engine:
        connect = self._connect[name]
        with self._lock:
            found = self._connected.get(name)
            if found is None:
                try:
                    found = connect()
                except InvalidInput as error:
                    raise EngineUnavailable(error.reason, item=error.item, remedy=error.remedy) from error
                self._connected[name] = found
            return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._connect)

    def __len__(self) -> int:
        return len(self._connect)

    def agreed(self, tenant: TenantHandle) -> str:
        """Where the tenant's next collection belongs. Raises `Unavailable` where the contract cannot be kept."""
        name = tenant.contract.engine or self.default
        self.of(tenant, name)
        return name

    def of(self, tenant: TenantHandle, name: str) -> Engine | None:
        """The engine `name` for this tenant; None for the embedded one. Raises `Unavailable`.

        Whatever a database says: an engine that serves one tenant alone serves no other, and a tenant that was
        promised an engine of its own is served at no other.
        """
        owner = self.dedicated.get(name)
        if owner is not None and owner != tenant.name:
            raise EngineUnavailable(
                "the engine serves another tenant alone", item=name, remedy="move the tenant elsewhere"
            )
        if tenant.contract.tier == "dedicated" and owner is None:
            raise EngineUnavailable(
                "the tenant's contract promises an engine of its own, and this one serves others too",
                item=name,
                remedy=f"set dedicated_to in collections.engines.{name}, or move the tenant",
            )
        if name == EMBEDDED:
            return None
        return self.holding(name)

    def holding(self, name: str) -> Engine:
        """The engine `name` for taking something away from it, which every contract permits. Raises `Unavailable`."""
        if name not in self._connect:
            raise EngineUnavailable(
                "the tenant's collection is at an engine that this deployment does not have",
                item=name,
                remedy=f"configure collections.engines.{name}",
            )
        return self[name]

    def needed(self) -> list[Engine]:
        """The engines that were connected because a tenant needed them."""
        with self._lock:
            return list(self._connected.values())

    def close(self) -> None:
        """Close what was connected."""
        with self._lock:
            closing, self._connected = self._connected, {}
        for engine in closing.values():
            engine.close()
