"""The Prometheus series of one server, in base units (seconds, tokens, shares). Five families name a tenant.

https://prometheus.io/docs/practices/naming/. Exact figures of a tenant are its signals and the ledger: here the busiest
have a label, and all others share one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.process_collector import ProcessCollector

from admission.shares import Share
from audit.ended import Ended
from service.metrics.labels import TenantLabels
from service.metrics.seen import Seen

Waiting = Callable[[], Mapping[str, tuple[int, int]]]
"""Requests that wait, and that run, by pool."""

_SECONDS: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_TENANT_SECONDS: Final = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_TOKEN_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)
_STATED: Final = frozenset({"hit", "miss", "bypass", "refresh"})


class Families:
    """Every series, in a registry of its own."""

    def __init__(self, most_tenants: int) -> None:
        # The time at which a series began, a gauge for each, is told by no rule or dashboard.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        self._labels = TenantLabels(most_tenants, self._end)
        ProcessCollector(registry=self.registry)
        self._of_requests()
        self._of_tenants()

    def _of_requests(self) -> None:
        on = self.registry
        self._requests = Counter(
            "strongroom_requests", "Requests by action and how they ended.", ["action", "fate"], registry=on
        )
        self._seconds = Histogram(
            "strongroom_request_duration_seconds",
            "Time of requests that were not refused, until the last byte was taken.",
            ["action"],
            buckets=_SECONDS,
            registry=on,
        )
        self._steps = Histogram(
            "strongroom_step_duration_seconds", "Time of steps of requests.", ["step"], buckets=_SECONDS, registry=on
        )
        self._queue = Histogram(
            "strongroom_queue_wait_seconds", "Time that answers waited for a model.", buckets=_SECONDS, registry=on
        )
        self._first = Histogram(
            "strongroom_time_to_first_token_seconds",
            "Time to the first text of answers.",
            buckets=_SECONDS,
            registry=on,
        )
        self._per_token = Histogram(
            "strongroom_time_per_output_token_seconds",
            "Time for each token after the first, of answers that a model wrote.",
            buckets=_TOKEN_SECONDS,
            registry=on,
        )
        self._tokens = Counter(
            "strongroom_tokens", "Tokens that models read and wrote.", ["model", "kind"], registry=on
        )
        self._cache = Counter(
            "strongroom_cache_lookups", "Questions by what the cache did.", ["status", "kind"], registry=on
        )
        self._refused = Counter(
            "strongroom_refusals", "Requests that a limit refused, by its scope.", ["scope"], registry=on
        )
        self._breaches = Counter(
            "strongroom_objective_breaches", "Contract objectives that a window missed.", ["objective"], registry=on
        )
        self._violations = Counter(
            "strongroom_isolation_violations", "Layers that an attestation by this server found not apart.", registry=on
        )
        self._waiting = Gauge("strongroom_pool_waiting_requests", "Requests that wait now.", ["pool"], registry=on)
        self._engine = Counter(
            "strongroom_pool_engine_seconds", "Time in which replicas had requests, in sum.", ["pool"], registry=on
        )
        self._running = Gauge("strongroom_pool_running_requests", "Requests at replicas now.", ["pool"], registry=on)

    def _of_tenants(self) -> None:
        on = self.registry
        self._tenant_requests = Counter(
            "strongroom_tenant_requests", "Requests by how they ended.", ["tenant", "fate"], registry=on
        )
        self._tenant_tokens = Counter(
            "strongroom_tenant_tokens", "Tokens that models read and wrote.", ["tenant", "kind"], registry=on
        )
        self._tenant_seconds = Histogram(
            "strongroom_tenant_answer_duration_seconds",
            "Time of answers, until the last byte was taken.",
            ["tenant"],
            buckets=_TENANT_SECONDS,
            registry=on,
        )
        self._tenant_queue = Counter(
            "strongroom_tenant_queue_wait_seconds", "Time that answers waited, in sum.", ["tenant"], registry=on
        )
        self._tenant_share = Gauge(
            "strongroom_tenant_share_ratio",
            "Service received by service due, in this window and the one before.",
            ["tenant"],
            registry=on,
        )

    @property
    def by_tenant(self) -> tuple[MetricWrapperBase, ...]:
        """The families with a tenant's name."""
        return (
            self._tenant_requests,
            self._tenant_tokens,
            self._tenant_seconds,
            self._tenant_queue,
            self._tenant_share,
        )

    def ended(self, ended: Ended, one: Seen | None, fate: str) -> None:
        """Count one request; `one` is None where it is no tenant's."""
        self._requests.labels(ended.action, fate).inc()
        if ended.scope is not None:
            self._refused.labels(ended.scope).inc()
        if fate == "answered":
            self._seconds.labels(ended.action).observe(ended.took_s)
        for step in ended.steps:
            self._steps.labels(step.name).observe(step.took_s)
        if ended.cache is not None and ended.cache.status in _STATED:
            self._cache.labels(ended.cache.status, ended.cache.kind or "none").inc()
        used = ended.generation
        if used is not None:
            for kind, count in (("input", used.input), ("cached_input", used.cached_input), ("output", used.output)):
                self._tokens.labels(used.model, kind).inc(count or 0)
        if one is not None:
            self._tenant(one)

    def _tenant(self, one: Seen) -> None:
        label = self._labels.of(one.tenant)
        self._tenant_requests.labels(label, one.fate).inc()
        self._tenant_tokens.labels(label, "input").inc(one.input_tokens)
        self._tenant_tokens.labels(label, "output").inc(one.output_tokens)
        if one.total_s is not None:
            self._tenant_seconds.labels(label).observe(one.total_s)
        if one.queue_s is not None:
            self._queue.observe(one.queue_s)
            self._tenant_queue.labels(label).inc(one.queue_s)
        if one.first_s is not None:
            self._first.observe(one.first_s)
        if one.per_token_s is not None:
            self._per_token.observe(one.per_token_s)

    def shares(self, found: Mapping[str, Share]) -> None:
        """Recent shares by tenant name; only those with a label of their own are shown."""
        self._tenant_share.clear()
        for tenant in self._labels.named:
            share = found.get(tenant)
            if share is not None and share.ratio is not None:
                self._tenant_share.labels(tenant).set(share.ratio)

    def engine(self, pool: str, seconds: float) -> None:
        self._engine.labels(pool).inc(seconds)

    def breached(self, objective: str) -> None:
        self._breaches.labels(objective).inc()

    def violated(self, layers: int) -> None:
        self._violations.inc(layers)

    @property
    def violations(self) -> int:
        return int(next(iter(self._violations.collect())).samples[0].value)

    def exposition(self, accept: str, waiting: Waiting) -> tuple[bytes, str]:
        """All series as text, in the form that `accept` asks for, and its media type."""
        self._waiting.clear()
        self._running.clear()
        for pool, (waits, runs) in waiting().items():
            self._waiting.labels(pool).set(waits)
            self._running.labels(pool).set(runs)
        encode, media_type = choose_encoder(accept)
        return encode(self.registry), media_type

    @property
    def declared(self) -> tuple[MetricWrapperBase, ...]:
        """All families of ours."""
        return tuple(family for family in vars(self).values() if isinstance(family, MetricWrapperBase))

    def names(self) -> Iterable[str]:
        """Every name that a query may use."""
        for metric in self.registry.collect():
            yield metric.name
            for suffix in {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count")}.get(metric.type, ()):
                yield metric.name + suffix

    def _end(self, tenant: str) -> None:
        for family in self.by_tenant:
            for labels in [key for key in _label_values(family) if key[0] == tenant]:
                with suppress(KeyError):
                    family.remove(*labels)


def _label_values(family: MetricWrapperBase) -> list[tuple[str, ...]]:
    found: dict[tuple[str, ...], None] = {}
    for metric in family.collect():
        for sample in metric.samples:
            found[tuple(sample.labels[name] for name in ("tenant", "fate", "kind") if name in sample.labels)] = None
    return list(found)
