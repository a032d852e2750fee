"""What the settings say about the admin listener, signals and traces."""

from __future__ import annotations

from typing import Annotated

import msgspec


class AdminSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The listener for whoever operates the service; `token_file` holds what a caller has to send as bearer token."""

    enabled: bool
    host: str
    port: Annotated[int, msgspec.Meta(ge=0, le=65535)]
    token_file: str


class TraceSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Where OpenTelemetry spans go (OTLP over HTTP), and of which `share` of the requests."""

    endpoint: str
    token_file: str
    plaintext: bool
    share: Annotated[float, msgspec.Meta(gt=0, le=1)]
    timeout_s: Annotated[float, msgspec.Meta(gt=0)]


class SignalSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`tenants` have a label of their own in the metrics; figures of each tenant are kept by windows of `window_s`."""

    window_s: Annotated[float, msgspec.Meta(ge=10)]
    tenants: Annotated[int, msgspec.Meta(ge=0, le=1_000)]
    traces: TraceSettings
