"""OpenTelemetry spans of requests, made as they end, with the names of the conventions for generative AI.

A request's trace has the request's id, so that the audit leads to the trace and back. Spans hold names of models,
counts and the tenant's name; no text, no person, no document. Needs the extra `otel`.
https://opentelemetry.io/docs/specs/semconv/gen-ai/
"""

from __future__ import annotations

import threading
from typing import Final, Protocol

from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import TraceIdRatioBased
from opentelemetry.trace import SpanKind, Status, StatusCode, Tracer, set_span_in_context

from audit.ended import Ended, Step

_NAMES: Final = {"embed": "embeddings", "retrieve": "retrieval", "generate": "chat"}
"""Steps that have an operation's name in the conventions."""
_NANO: Final = 1_000_000_000


class Traces(Protocol):
    """Takes requests as they end."""

    def ended(self, ended: Ended) -> None: ...

    def close(self) -> None:
        """Send what is left."""
        ...


class Spans:
    """Spans through `processor`, of a `share` of the requests."""

    def __init__(self, processor: SpanProcessor, *, share: float = 1.0) -> None:
        self._ids = _Ids()
        self._provider = TracerProvider(
            sampler=TraceIdRatioBased(share),
            resource=Resource({"service.name": "strongroom"}),
            id_generator=self._ids,
            shutdown_on_exit=False,
        )
        self._provider.add_span_processor(processor)
        self._tracer: Tracer = self._provider.get_tracer("strongroom")

    def ended(self, ended: Ended) -> None:
        """Make the spans of a request that ended."""
        begun = round(ended.begun * _NANO)
        attributes: dict[str, str | float] = {
            "strongroom.action": ended.action,
            "strongroom.outcome": ended.outcome,
        }
        if ended.principal is not None:
            attributes["strongroom.tenant"] = ended.principal.tenant
        if ended.cache is not None:
            attributes["strongroom.cache.status"] = ended.cache.status
        if ended.queue_s:
            attributes["strongroom.queue.seconds"] = ended.queue_s
        with self._ids.of(ended.request_id):
            root = self._tracer.start_span(
                ended.action, Context(), kind=SpanKind.SERVER, attributes=attributes, start_time=begun
            )
        if ended.outcome == "error":
            root.set_attribute("error.type", ended.reason or "error")
            root.set_status(Status(StatusCode.ERROR))
        within = set_span_in_context(root, Context())
        for step in ended.steps:
            self._step(ended, step, within, begun)
        root.end(begun + round(ended.took_s * _NANO))

    def close(self) -> None:
        self._provider.shutdown()

    def _step(self, ended: Ended, step: Step, within: Context, begun: int) -> None:
        operation = _NAMES.get(step.name)
        used = ended.generation if step.name == "generate" else None
        start = begun + round(step.start_s * _NANO)
        span = self._tracer.start_span(
            " ".join(filter(None, (operation or step.name, used.model if used else None))),
            within,
            kind=SpanKind.CLIENT if used else SpanKind.INTERNAL,
            start_time=start,
        )
        if operation is not None:
            span.set_attribute("gen_ai.operation.name", operation)
        if used is not None:
            span.set_attribute("gen_ai.provider.name", "strongroom")
            span.set_attribute("gen_ai.request.model", used.model)
            span.set_attribute("gen_ai.response.model", used.model)
            span.set_attribute("gen_ai.usage.input_tokens", used.input or 0)
            span.set_attribute("gen_ai.usage.output_tokens", used.output or 0)
            if used.finish is not None:
                span.set_attribute("gen_ai.response.finish_reasons", (used.finish,))
            if ended.first_s is not None:
                span.set_attribute("gen_ai.response.time_to_first_chunk", max(0.0, ended.first_s - step.start_s))
        span.end(start + round(step.took_s * _NANO))


class _Ids(RandomIdGenerator):
    """Random ids, and for a request's first span the request's own id as the trace's."""

    def __init__(self) -> None:
        self._next = threading.local()

    def of(self, request_id: str) -> _Ids:
        self._next.id = int(request_id, 16) if len(request_id) == 32 else None
        return self

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        self._next.id = None

    def generate_trace_id(self) -> int:
        given = getattr(self._next, "id", None)
        return given or super().generate_trace_id()
