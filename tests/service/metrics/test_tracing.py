"""Spans of requests, as an exporter receives them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="needs the extra otel")

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes

from audit.ended import Step
from service.metrics.export import traces_of
from service.metrics.tracing import Spans
from service.signal_settings import TraceSettings
from tests.service.metrics.test_signals import ended

REQUEST = "0123456789abcdef0123456789abcdef"


def exported(**given: object) -> dict[str, ReadableSpan]:
    exporter = InMemorySpanExporter()
    spans = Spans(SimpleSpanProcessor(exporter))
    spans.ended(ended(request_id=REQUEST, **given))
    spans.close()
    return {span.name: span for span in exporter.get_finished_spans()}


def test_a_request_is_a_trace_of_its_own_id_with_a_span_for_each_step() -> None:
    found = exported()
    assert set(found) == {"answer", "embeddings", "chat tiny"}
    root = found["answer"]
    for span in found.values():
        assert span.context is not None
        assert f"{span.context.trace_id:032x}" == REQUEST
        assert span.start_time is not None
        assert span.end_time is not None
    assert root.parent is None
    assert root.context is not None
    assert {span.parent.span_id for span in found.values() if span.parent} == {root.context.span_id}
    assert (root.start_time, root.end_time) == (1_000 * 10**9, 1_002 * 10**9)
    chat = found["chat tiny"]
    assert (chat.start_time, chat.end_time) == (1_000_300_000_000, 1_001_500_000_000)


def test_the_names_are_those_of_the_conventions() -> None:
    attributes = exported()["chat tiny"].attributes or {}
    known = {value for name, value in vars(gen_ai_attributes).items() if name.startswith("GEN_AI")}
    assert {name for name in attributes if name.startswith("gen_ai.")} <= known
    assert attributes["gen_ai.operation.name"] == "chat"
    assert (attributes["gen_ai.usage.input_tokens"], attributes["gen_ai.usage.output_tokens"]) == (100, 11)
    assert attributes["gen_ai.response.finish_reasons"] == ("stop",)
    assert attributes["gen_ai.response.time_to_first_chunk"] == pytest.approx(0.2)


def test_a_failure_is_an_error_and_says_its_code_alone() -> None:
    steps = (Step("generate", 0.0, 1.0),)
    root = exported(outcome="error", reason="unavailable", generation=None, steps=steps)["answer"]
    assert not root.status.is_ok
    assert root.status.description is None
    assert (root.attributes or {})["error.type"] == "unavailable"


def test_no_span_names_a_person() -> None:
    text = " ".join(span.to_json() for span in exported().values())
    assert "acme" in text
    assert "ana" not in text.replace("answer", "")


def test_an_id_that_is_none_of_ours_has_a_random_trace() -> None:
    exporter = InMemorySpanExporter()
    spans = Spans(SimpleSpanProcessor(exporter))
    spans.ended(ended(request_id="short"))
    spans.close()
    contexts = [span.context for span in exporter.get_finished_spans()]
    assert len({context.trace_id for context in contexts if context}) == 1


@pytest.fixture
def collector() -> Iterator[tuple[str, list[tuple[str | None, bytes]]]]:
    received: list[tuple[str | None, bytes]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            received.append((self.headers["authorization"], body))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            return None

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/v1/traces", received
    server.shutdown()
    thread.join()
    server.server_close()


def test_spans_reach_a_collector(tmp_path: Path, collector: tuple[str, list[tuple[str | None, bytes]]]) -> None:
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    endpoint, received = collector
    token = tmp_path / "token"
    token.write_text("sesame\n")
    traces = traces_of(
        TraceSettings(endpoint=endpoint, token_file=str(token), plaintext=False, share=1.0, timeout_s=5.0)
    )
    assert traces is not None
    traces.ended(ended(request_id=REQUEST))
    traces.close()
    ((authorization, body),) = received
    assert authorization == "Bearer sesame"
    sent = ExportTraceServiceRequest.FromString(body)
    (of_resource,) = sent.resource_spans
    assert {span.trace_id.hex() for scope in of_resource.scope_spans for span in scope.spans} == {REQUEST}
