"""The figures of each tenant, in windows of equal length: the one that runs, and some before it."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from admission.shares import Share
from generation.occupancy import EngineUse
from service.metrics.seen import Seen
from service.metrics.sketch import Sketch

KEPT: Final = 12
"""Ended windows kept of each tenant."""
TENANTS: Final = 2_000
"""Tenants of which figures are kept, those seen last."""


class Quantiles(msgspec.Struct, frozen=True):
    """Seconds, within 2 %; absent where nothing was measured."""

    count: int
    p50: float | None
    p95: float | None
    p99: float | None

    @classmethod
    def of(cls, sketch: Sketch) -> Quantiles:
        return cls(sketch.count, *(sketch.quantile(share) for share in (0.50, 0.95, 0.99)))


class Figures(msgspec.Struct, frozen=True):
    """One tenant over a span of time (UTC epoch seconds).

    `requests` are all, `questions` those for an answer; of both, `refused_by_own_limit`, `refused_by_system` (also
    failures) and `rejected` (the caller's mistake). `total`, `queue_wait`, `first_token` and `per_output_token` are of
    answers. `share_received` and `share_due` are work (tokens read + 2 x tokens written, `admission.shares`), and
    `share` the one by the other. `retry_rate` and `abandon_rate` are shares of questions, `edit_rate` of the answers
    that were told about in this time. `engine_s` are seconds of replicas, and `kv_peak_tokens` the most tokens in
    flight at one pool, both estimates (`generation.occupancy`).
    """

    since: float
    until: float
    requests: int
    questions: int
    answered: int
    refused_by_own_limit: int
    refused_by_system: int
    rejected: int
    availability: float | None
    total: Quantiles
    queue_wait: Quantiles
    first_token: Quantiles
    per_output_token: Quantiles
    input_tokens: int
    output_tokens: int
    share_received: float
    share_due: float
    share: float | None
    engine_s: float
    kv_peak_tokens: int
    retry_rate: float | None
    edit_rate: float | None
    abandon_rate: float | None
    told: int


class Window:
    """What one tenant did in one span; windows add up."""

    def __init__(self, since: float) -> None:
        self.since = since
        self.until = since
        self.requests = self.questions = self.answered = 0
        self.own = self.system = self.rejected = 0
        self.retries = self.abandoned = self.edited = self.told = 0
        self.input_tokens = self.output_tokens = 0
        self.share = Share()
        self.engine = EngineUse()
        self.total, self.queue, self.first, self.per_token = Sketch(), Sketch(), Sketch(), Sketch()

    def add(self, one: Seen, *, retry: bool) -> None:
        self.requests += 1
        self.own += one.fate == "own-limit"
        self.system += one.fate == "system"
        self.rejected += one.fate == "rejected"
        self.told += one.verdict is not None
        self.edited += one.verdict == "edited"
        self.input_tokens += one.input_tokens
        self.output_tokens += one.output_tokens
        if not one.is_answer:
            return
        self.questions += 1
        self.answered += one.fate == "answered"
        self.abandoned += one.fate == "abandoned"
        self.retries += retry
        for sketch, value in (
            (self.total, one.total_s),
            (self.queue, one.queue_s),
            (self.first, one.first_s),
            (self.per_token, one.per_token_s),
        ):
            if value is not None:
                sketch.add(value)

    def merge(self, other: Window) -> None:
        """Add a later window."""
        self.until = max(self.until, other.until)
        for name in _COUNTS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.share += other.share
        self.engine += other.engine
        for name in _SKETCHES:
            getattr(self, name).merge(getattr(other, name))

    @property
    def served(self) -> int:
        """Requests that the deployment had to serve: not those over the tenant's own limits, nor caller's mistakes."""
        return self.requests - self.own - self.rejected

    def figures(self, until: float | None = None) -> Figures:
        return Figures(
            since=self.since,
            until=self.until if until is None else until,
            requests=self.requests,
            questions=self.questions,
            answered=self.answered,
            refused_by_own_limit=self.own,
            refused_by_system=self.system,
            rejected=self.rejected,
            availability=_rate(self.served - self.system, self.served),
            total=Quantiles.of(self.total),
            queue_wait=Quantiles.of(self.queue),
            first_token=Quantiles.of(self.first),
            per_output_token=Quantiles.of(self.per_token),
            input_tokens=self.input_tokens,
            output_tokens=self.output_tokens,
            share_received=self.share.received,
            share_due=self.share.due,
            share=self.share.ratio,
            engine_s=self.engine.engine_ns / 1e9,
            kv_peak_tokens=self.engine.kv_peak,
            retry_rate=_rate(self.retries, self.questions),
            edit_rate=_rate(self.edited, self.told),
            abandon_rate=_rate(self.abandoned, self.questions),
            told=self.told,
        )


_COUNTS: Final = (
    "requests", "questions", "answered", "own", "system", "rejected",
    "retries", "abandoned", "edited", "told", "input_tokens", "output_tokens",
)  # fmt: skip
_SKETCHES: Final = ("total", "queue", "first", "per_token")


class History:
    """One tenant: `name`, the window that runs, those before it, and what waits to be judged."""

    def __init__(self, name: str, since: float) -> None:
        self.name = name
        self.current = Window(since)
        self.ended: deque[Window] = deque(maxlen=KEPT)
        self.unjudged: Window | None = None

    @property
    def last(self) -> Window | None:
        """The window right before the one that runs, if anything happened in it."""
        return self.ended[-1] if self.ended and self.ended[-1].until == self.current.since else None


class Windows:
    """The histories of the tenants seen last, by tenant id. Times are UTC epoch seconds; windows begin together."""

    def __init__(self, window_s: float) -> None:
        self.window_s = window_s
        self._histories: OrderedDict[str, History] = OrderedDict()

    def add(self, one: Seen, now: float, *, retry: bool = False) -> None:
        self._of(one.tenant_id, one.tenant, now).current.add(one, retry=retry)

    def add_share(self, tenant_id: str, share: Share, now: float) -> None:
        """Service of a tenant that was seen; of one that was not, nothing is kept."""
        history = self._histories.get(tenant_id)
        if history is not None:
            self._roll(history, now)
            history.current.share += share

    def add_use(self, tenant_id: str, use: EngineUse, now: float) -> None:
        """Use of the engines by a tenant that was seen; of one that was not, nothing is kept."""
        history = self._histories.get(tenant_id)
        if history is not None:
            self._roll(history, now)
            history.current.engine += use

    def find(self, tenant_id: str, now: float) -> History | None:
        """The history of a tenant, with windows up to `now`."""
        history = self._histories.get(tenant_id)
        if history is not None:
            self._roll(history, now)
        return history

    def rolled(self, now: float) -> Iterator[tuple[str, History]]:
        """Every history with its id, with windows up to `now`."""
        for tenant_id, history in list(self._histories.items()):
            self._roll(history, now)
            yield tenant_id, history

    def _of(self, tenant_id: str, name: str, now: float) -> History:
        history = self._histories.get(tenant_id)
        if history is None:
            history = self._histories[tenant_id] = History(name, self._begin(now))
            if len(self._histories) > TENANTS:
                self._histories.popitem(last=False)
        self._histories.move_to_end(tenant_id)
        self._roll(history, now)
        return history

    def _begin(self, now: float) -> float:
        return now // self.window_s * self.window_s

    def _roll(self, history: History, now: float) -> None:
        window, begin = history.current, self._begin(now)
        if window.since >= begin:
            return
        window.until = window.since + self.window_s
        is_judged = bool(window.requests) or window.share != Share()
        if is_judged or window.engine != EngineUse():
            history.ended.append(window)
        while history.ended and history.ended[0].since < begin - KEPT * self.window_s:
            history.ended.popleft()
        if is_judged:
            if history.unjudged is None:
                history.unjudged = Window(window.since)
            history.unjudged.merge(window)
        history.current = Window(begin)


def merged(windows: Iterable[Window]) -> Window | None:
    """All of `windows`, oldest first, as one."""
    whole: Window | None = None
    for window in windows:
        if whole is None:
            whole = Window(window.since)
        whole.merge(window)
    return whole


def _rate(part: int, whole: int) -> float | None:
    return part / whole if whole else None
