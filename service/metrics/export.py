"""Where spans go: an OTLP collector over HTTP, where the settings name one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from service.signal_settings import TraceSettings
from tenancy.errors import InvalidInput

if TYPE_CHECKING:
    from service.metrics.tracing import Traces

_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})


def traces_of(settings: TraceSettings) -> Traces | None:
    """What sends spans; None where no collector is named. Raises `InvalidInput` for one that cannot be used."""
    if not settings.endpoint:
        return None
    parts = urlsplit(settings.endpoint)
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.username or parts.password:
        raise InvalidInput(
            "this is no address of a collector",
            item="signals.traces.endpoint",
            remedy="as in https://collector:4318/v1/traces, without a name or password in it",
        )
    if parts.scheme == "http" and parts.hostname not in _LOOPBACK and not settings.plaintext:
        raise InvalidInput(
            "spans name tenants and would cross the network in the clear",
            item="signals.traces.endpoint",
            remedy="use https, or set signals.traces.plaintext = true in a private network",
        )
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        from service.metrics.tracing import Spans
    except ModuleNotFoundError:
        raise InvalidInput(
            "the OpenTelemetry exporter is not installed",
            item="signals.traces.endpoint",
            remedy="pip install strongroom[otel]",
        ) from None
    headers = {"Authorization": f"Bearer {_secret(settings.token_file)}"} if settings.token_file else None
    exporter = OTLPSpanExporter(endpoint=settings.endpoint, headers=headers, timeout=settings.timeout_s)
    return Spans(BatchSpanProcessor(exporter), share=settings.share)


def _secret(file: str) -> str:
    path = Path(file).expanduser()
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not text"
        raise InvalidInput(f"the token cannot be read: {reason}", item=str(path), remedy="one line of text") from None
