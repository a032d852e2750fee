"""The process that serves: uvicorn around the application, its signals, and the order of shutting down."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Final

import structlog
import uvicorn
from sqlalchemy.exc import SQLAlchemyError

from admission.reaper import Reaper
from service.admin import create_admin
from service.app import create_app
from service.attest.running import publish
from service.attest.schedule import attest_regularly, sweep_canaries
from service.cache_check import require_fit
from service.connection import Connection
from service.control import Control
from service.counters_check import require_counters
from service.deletion import sweep_collections
from service.expiry import Expiry
from service.isolation import require_isolation
from service.log_care import LogCare
from service.logs import configure_logging
from service.loopback import is_loopback
from service.metrics.export import traces_of
from service.metrics.judge import Judge
from service.metrics.pools import shares, uses
from service.settings import ServerSettings, Settings
from service.wiring import ServerLock, Services, build
from tenancy.errors import InvalidInput, StrongroomError, Unavailable

FORGET_S: Final = 30.0
"""Seconds until a server has forgotten a tenant that a command deleted."""

EXPIRE_S: Final = 30.0
"""Seconds between two steps of `service.expiry`."""

_log = structlog.get_logger("strongroom.server")


def run(settings: Settings, again: Callable[[], Settings]) -> None:
    """Serve until SIGINT or SIGTERM; requests in flight may end first. At SIGHUP the pools of generators are taken from
    the settings that `again` reads.

    Raises `Conflict` beside another server, `InvalidInput` for a certificate that cannot be loaded, `Unavailable` for
    an address that cannot be listened on, `NotIsolated` where no pool keeps its tenants' KV memory apart.
    """
    _check_certificate(settings.server)
    # Over PostgreSQL, too: servers share their tenants there, and each has a data directory of its own.
    lock = ServerLock(settings.data_path)
    try:
        configure_logging()
        asyncio.run(_serve(settings, again))
    finally:
        lock.release()


async def _serve(settings: Settings, again: Callable[[], Settings]) -> None:
    services = build(settings)
    services.path.cache.renews = True
    care = LogCare(services.control, settings.audit.verify_every_h * 3_600)
    try:
        await services.workers.run(sweep_canaries, services.control)
        await services.workers.run(require_fit, services.path.cache)
        await require_counters(services.path.admission.counters)
        await require_isolation(services.path.routes)
        if not settings.server.tls_certificate and not is_loopback(settings.server.host):
            _log.warning("plain HTTP on an address that others reach", host=settings.server.host)
        services.signals.traces = traces_of(settings.signals.traces)
        server = _Server(server_config(create_app(services), settings.server))
        admin = _admin(services)
        beside = [
            asyncio.create_task(_judge(services).keep()),
            asyncio.create_task(services.workers.run(_tidy, services.control)),
            asyncio.create_task(_forget_deleted(services)),
            asyncio.create_task(_expire(services)),
            asyncio.create_task(_reload(services, again)),
            asyncio.create_task(Reaper(services.path.admission).run()),
            asyncio.create_task(services.alerts.run()),
            asyncio.create_task(care.keep_signed()),
            asyncio.create_task(care.keep_verified()),
            asyncio.create_task(attest_regularly(services.control, lambda: server.port)),
        ]
        await services.workers.run(publish, settings)
        async with _administered(server, admin):
            await server.serve()
        for task in beside:
            task.cancel()
        # An attestation under way removes its canaries.
        await asyncio.wait(beside, timeout=settings.server.shutdown_s)
    finally:
        await asyncio.to_thread(care.close)
        await asyncio.to_thread(services.signals.close)
        await services.aclose()


def _tidy(control: Control) -> None:
    """Finish what a crash left, while questions are served already: files of deleted tenants, changes of keys that were
    cut short, intents without an outcome. Its time depends on how much was left, not on how many tenants there are.
    """
    try:
        control.tenants.sweep()
    except (StrongroomError, SQLAlchemyError, OSError) as error:
        _log.error("what was left of deleted tenants may still be there", error=type(error).__name__)
    for log_id, settled in control.logs.recover():
        if isinstance(settled, Exception):
            _log.error("an audit log was not recovered", log=log_id, error=type(settled).__name__)
        elif settled:
            _log.warning("intents of an earlier process settled", log=log_id, count=settled)


async def _forget_deleted(services: Services) -> None:
    """A tenant is deleted by a command of another process: its index, keys and files must not stay here."""
    while True:
        await asyncio.sleep(FORGET_S)
        try:
            await services.workers.run(services.control.logs.settle)
            await services.workers.run(services.forget_deleted)
            # Where several servers run, one of the others may have ended in the meantime.
            await services.workers.run(_tidy, services.control)
            await services.workers.run(sweep_collections, services.control, services.engines, services.path.cache)
        except (StrongroomError, SQLAlchemyError) as error:
            _log.error("deleted tenants may still be in memory", error=type(error).__name__)


async def _expire(services: Services) -> None:
    expiry = Expiry(services.control, services.path.cache)
    while True:
        await asyncio.sleep(EXPIRE_S)
        try:
            await services.workers.run(expiry.step)
        except (StrongroomError, SQLAlchemyError) as error:
            _log.error("expired answers may still be in the cache", error=type(error).__name__)


async def _reload(services: Services, again: Callable[[], Settings]) -> None:
    """Whenever SIGHUP comes: new replicas join after their checks, those that are left out finish their streams."""
    asked = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, asked.set)
    while True:
        await asked.wait()
        asked.clear()
        try:
            settings = await services.workers.run(again)
            services.reload(settings)
            await services.workers.run(publish, settings)
        except StrongroomError as error:
            _log.error("the settings were not taken over", reason=error.reason, item=error.item, remedy=error.remedy)
        except (OSError, RuntimeError, ValueError):
            _log.exception("the settings were not taken over")  # and the next signal is heard
        else:
            _log.info("the pools of generators are those of the settings")


@asynccontextmanager
async def _administered(server: _Server, admin: _Server | None) -> AsyncIterator[None]:
    """`admin` listens during the block; where it cannot, `server` ends, and this raises why."""
    if admin is None:
        yield
        return

    def ended(_: asyncio.Task[None]) -> None:
        server.should_exit = True

    listening = asyncio.create_task(admin.serve())
    listening.add_done_callback(ended)
    try:
        yield
    finally:
        admin.should_exit = True
        await listening


def _judge(services: Services) -> Judge:
    routes = services.path.routes
    return Judge(services.control, services.signals, services.workers, lambda: shares(routes), lambda: uses(routes))


def _admin(services: Services) -> _Server | None:
    settings = services.settings.server.admin
    if not settings.enabled:
        return None
    config = uvicorn.Config(
        create_admin(services, settings),
        host=settings.host,
        port=settings.port,
        log_config=None,
        access_log=False,
        server_header=False,
        http=Connection,
        ws="none",
        lifespan="on",
        timeout_graceful_shutdown=1,
    )
    return _Server(config, "metrics on", "server.admin.port", signals=False)


def server_config(app: object, server: ServerSettings) -> uvicorn.Config:
    return uvicorn.Config(
        app,  # type: ignore[arg-type]
        host=server.host,
        port=server.port,
        log_config=None,
        access_log=False,
        server_header=False,
        http=Connection,
        ws="none",
        lifespan="on",
        timeout_graceful_shutdown=max(1, round(server.shutdown_s)),
        proxy_headers=bool(server.trusted_proxies),
        forwarded_allow_ips=list(server.trusted_proxies),
        ssl_certfile=server.tls_certificate or None,
        ssl_keyfile=server.tls_key or None,
    )


class _Server(uvicorn.Server):
    """uvicorn raises its stop signal again when it is done, which would end the process before the audit is closed.

    One of several alone takes `signals`; `told` stands before the address that is printed, `chosen` is what chooses it.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        told: str = "listening on",
        chosen: str = "--host and --port",
        *,
        signals: bool = True,
    ) -> None:
        super().__init__(config)
        self._told = told
        self._chosen = chosen
        self._takes_signals = signals

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        if not self._takes_signals:
            yield
            return
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self.handle_exit, number, None)
        try:
            yield
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)

    @property
    def port(self) -> int | None:
        """The port that it listens on, None while it does not."""
        for server in getattr(self, "servers", []) if self.started and not self.should_exit else []:
            for listening in server.sockets:
                return int(listening.getsockname()[1])
        return None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        try:
            await super().startup(sockets=sockets)
        except SystemExit as ended:
            # uvicorn ends the process where it cannot listen; `run` is to release what it holds, and say what to do.
            if not isinstance(cause := ended.__context__, OSError):
                raise
            reason = os.strerror(cause.errno) if cause.errno and cause.errno > 0 else cause.strerror or str(cause)
            raise Unavailable(
                f"cannot be listened on: {reason.lower()}",
                item=f"{self.config.host}:{self.config.port}",
                remedy=f"stop what listens there, or choose another address with {self._chosen}",
            ) from None
        for server in getattr(self, "servers", []):
            for listening in server.sockets:
                host, port = listening.getsockname()[:2]
                scheme = "https" if self.config.is_ssl else "http"
                shown = f"[{host}]" if ":" in host else host
                print(f"{self._told} {scheme}://{shown}:{port}", flush=True)


def _check_certificate(server: ServerSettings) -> None:
    if not server.tls_certificate:
        return
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(server.tls_certificate, server.tls_key or None)
    except OSError as error:
        raise InvalidInput(
            f"the certificate or its key cannot be loaded: {error.strerror or error}",
            item=server.tls_certificate,
            remedy="let server.tls_certificate and server.tls_key name a PEM file each",
        ) from None
