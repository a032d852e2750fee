"""One attestation: canaries made, every layer examined, canaries removed, the report signed and on record."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any, Final

import msgspec

from audit.trail import Trail
from service.attest import (
    adapters,
    cache,
    conformance,
    logs,
    memory,
    metrics,
    performance,
    queue,
    retrieval,
    timing,
)
from service.attest.caller import Caller
from service.attest.canaries import Pair, canaries, on_record
from service.attest.claims import Layer, combined, inconclusive
from service.attest.stage import Options, Stage
from service.control import Control
from service.generators import pools_of
from service.settings import Settings
from tenancy.deletion import canonical
from tenancy.errors import StrongroomError

ACTION: Final = "attest"
KIND: Final = "isolation attestation"
VERSION: Final = 1

_LAYERS: Final[dict[str, Callable[[Stage], Layer]]] = {
    retrieval.NAME: retrieval.examine,
    cache.NAME: cache.examine,
    memory.NAME: memory.examine,
    adapters.NAME: adapters.examine,
    logs.NAME: logs.examine,
    metrics.NAME: metrics.examine,
    queue.NAME: queue.examine,
    performance.NAME: performance.examine,
    timing.NAME: timing.examine,
}
_UNEXPECTED: Final = (KeyError, IndexError, TypeError, ValueError)
"""Of an answer that has another form than the service's."""

Progress = Callable[[str], None]


def attest(
    control: Control,
    caller: Caller,
    options: Options,
    *,
    tenants: Sequence[str] = (),
    progress: Progress = lambda _: None,
) -> dict[str, Any]:
    """The signed report of the service that `caller` reaches, which works with the tenants of `control`.

    `tenants` are those whose contracts are compared; without any, all. What is found is on record as `attest` in the
    system's log. Raises `Unavailable` where nothing answers, `NotFound` for a tenant that there is none of.
    """
    begun = time.time()
    caller.send("GET", "/healthz/live")
    found = [conformance.examine(control, tenants)]
    removed: list[str] = []
    refusal = _unsafe(control.settings)
    if refusal is None:
        with canaries(control) as pair:
            removed += [pair.left.name, pair.right.name]
            examined = _examined(control.settings, caller, pair, options, progress)
    else:
        examined = [Layer.of(name, [inconclusive("the layer is apart", refusal)]) for name in _LAYERS]
    layers = [*examined, *found]
    report = {
        "kind": KIND,
        "version": VERSION,
        "product": version("strongroom"),
        "service": caller.url,
        "begun": _iso(begun),
        "ended": _iso(time.time()),
        "verdict": combined([layer.verdict for layer in layers]),
        "layers": msgspec.to_builtins(layers),
        "canaries": removed,
    }
    return on_record(control, None, ACTION, lambda trail: _signed(control, report, trail))


def digest(report: dict[str, Any]) -> str:
    """SHA-256 of the bytes that are signed, hexadecimal: the audit event names the report by it."""
    return hashlib.sha256(canonical(report)).hexdigest()


def _examined(settings: Settings, caller: Caller, pair: Pair, options: Options, progress: Progress) -> list[Layer]:
    stage = Stage(settings, caller, pair, options)
    found = []
    for name, examine in _LAYERS.items():
        progress(name)
        try:
            found.append(examine(stage))
        except StrongroomError as error:
            found.append(Layer.of(name, [inconclusive("the layer was examined", str(error))]))
        except _UNEXPECTED as error:
            why = f"the service answered in another form than expected ({type(error).__name__})"
            found.append(Layer.of(name, [inconclusive("the layer was examined", why)]))
    return found


def _unsafe(settings: Settings) -> str | None:
    """Why no canary tenant may ask here, or None. A pool whose servers take no salt serves the first tenant that it
    meets, and a canary must not take that place.
    """
    for name, (_, pool) in pools_of(settings.generation).items():
        if pool.kind == "openai" and not pool.dedicated_to and pool.kv_isolation != "waived":
            return f"the pool {name} takes no salt and serves one tenant alone: a canary would be a second"
    return None


def _signed(control: Control, report: dict[str, Any], trail: Trail) -> dict[str, Any]:
    signed = control.tenants.deletion.signed(report)
    trail.note(
        detail={
            "verdict": report["verdict"],
            "layers": ", ".join(f"{layer['layer']}: {layer['verdict']}" for layer in report["layers"]),
            "probes": sum(claim["probes"] for layer in report["layers"] for claim in layer["claims"]),
            "controls": sum(claim["controls"] for layer in report["layers"] for claim in layer["claims"]),
            "sha256": digest(signed),
        }
    )
    return signed


def _iso(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
