"""What one request was, told as its outcome goes on record to whoever counts requests. No text of a person is in it."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from audit.record import CacheUse, Detail, GenerationUse, Outcome
from tenancy.identity import Principal
from tenancy.keys import keyed_hash

_PROCESS_KEY: Final = secrets.token_bytes(32)
_DIGEST: Final = 12


@dataclass(frozen=True, slots=True)
class Step:
    """A step of a request: seconds since the request began, and seconds that it took."""

    name: str
    start_s: float
    took_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """`begun` is UTC epoch seconds. `first_s` are the seconds to the first byte of an answer, `queue_s` those spent in
    queues. `scope` is who ran out where a limit refused. `asked` is equal for the same question of the same person, in
    this process alone.
    """

    principal: Principal | None
    action: str
    request_id: str
    outcome: Outcome
    reason: str | None
    scope: str | None
    begun: float
    took_s: float
    first_s: float | None
    queue_s: float
    steps: tuple[Step, ...]
    cache: CacheUse | None
    generation: GenerationUse | None
    detail: Mapping[str, Detail]
    asked: bytes | None


Observer = Callable[[Ended], None]


class Course:
    """The times of one request on its way. One task writes it."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.begun = time.time()
        self.first_s: float | None = None
        self.queue_s = 0.0
        self.asked: bytes | None = None
        self.steps: list[Step] = []
        self._clock = clock
        self._start = clock()

    @property
    def took_s(self) -> float:
        return self._clock() - self._start

    def first(self) -> None:
        """The first byte of the answer leaves; later calls change nothing."""
        if self.first_s is None:
            self.first_s = self.took_s

    def waited(self, seconds: float) -> None:
        """So long the request stood in a queue; it adds up."""
        self.queue_s += seconds

    def step(self, name: str, milliseconds: float) -> None:
        """A step that ends now."""
        took = milliseconds / 1000
        self.steps.append(Step(name, max(0.0, self.took_s - took), took))

    def asks(self, principal: Principal, question: str) -> None:
        """Keep a keyed digest of a question, without spaces around it and without case."""
        plain = " ".join(question.casefold().split())
        user = principal.user_id or principal.user
        self.asked = keyed_hash(_PROCESS_KEY, principal.tenant_id, user, plain)[:_DIGEST]
