"""The trail of one request: intent before bytes, and an outcome on every exit.

    async with audit.open(principal, action="answer", request_id=request_id) as trail:
        trail.note(question=question, policy=Policy(domain=domain.fingerprint))
        await trail.intent()          # durable, or AuditUnavailable: nothing may leave before this returns
        ...
        trail.note(answer=text, resources=cited)

Whatever ends the block (return, error, cancellation, a closed generator) writes the outcome. After an intent it is
queued and not awaited, so a cancelled task cannot lose it; without an intent the outcome is the only record, and the
exit waits until it is durable.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from types import TracebackType
from typing import Final, Self, get_args

import msgspec

from audit.ended import Course, Ended, Observer
from audit.log import AuditLog
from audit.logs import AuditLogs
from audit.record import (
    Actor,
    Basis,
    CacheUse,
    Content,
    Cost,
    Detail,
    Draft,
    GenerationUse,
    Metered,
    Outcome,
    Phase,
    Policy,
    Request,
    Resource,
    Stage,
)
from tenancy.errors import (
    AuditUnavailable,
    Conflict,
    Forbidden,
    InvalidInput,
    LimitExceeded,
    NotFound,
    StrongroomError,
    Throttled,
    Unauthenticated,
)
from tenancy.identity import Principal
from tenancy.names import nfc_name

_REFUSALS: Final = (InvalidInput, Unauthenticated, Throttled, Forbidden, NotFound, Conflict, LimitExceeded)
_ABORTS: Final = (asyncio.CancelledError, GeneratorExit, KeyboardInterrupt)
_RANK: Final = {stage: rank for rank, stage in enumerate(get_args(Stage))}

_logger = logging.getLogger(__name__)


class AuditTrail:
    """Opens the trail of each request in the right log."""

    def __init__(self, logs: AuditLogs, observer: Observer | None = None) -> None:
        """`observer` is told of every request as it ends; it must not raise."""
        self.logs = logs
        self.observer = observer

    def open(
        self,
        principal: Principal | None,
        *,
        action: str,
        request_id: str,
        root: str | None = None,
        parent: str | None = None,
    ) -> Trail:
        """The trail of one request of `principal`, to be entered with `async with`.

        It goes to the log of the principal's tenant, suspended or not; without a principal (a failed
        authentication) to the system log. Raises `InvalidInput` for ids that cannot be logged.
        """
        request = Request(
            id=nfc_name(request_id, "request id"),
            root=None if root is None else nfc_name(root, "root id"),
            parent=None if parent is None else nfc_name(parent, "parent id"),
        )
        return Trail(self.logs.of(principal), principal, action, request, self.observer)


class Trail:
    """What one request notes about itself. Use it from one task at a time. `course` has its times."""

    def __init__(
        self,
        log: AuditLog,
        principal: Principal | None,
        action: str,
        request: Request,
        observer: Observer | None = None,
    ) -> None:
        self.log = log
        self.course = Course()
        self._principal = principal
        self._observer = observer
        self._action = action
        self._request = request
        self._actor, self._texts = _actor(log, principal)
        self._policy = Policy()
        self._resources: dict[tuple[str, str | None, str | None], Resource] = {}
        self._withheld = 0
        self._cache: CacheUse | None = None
        self._generation: GenerationUse | None = None
        self._cost = Cost()
        self._detail: dict[str, Detail] = {}
        self._concluded: tuple[Outcome, str | None] | None = None
        self._intent: Future[int] | None = None

    def note(
        self,
        *,
        policy: Policy | None = None,
        resources: Iterable[Resource] = (),
        withheld: int = 0,
        cache: CacheUse | None = None,
        generation: GenerationUse | None = None,
        microunits: int | None = None,
        question: str | None = None,
        filter: str | None = None,
        answer: str | None = None,
        detail: Mapping[str, Detail] | None = None,
    ) -> None:
        """Add to the event. Policy fields and details are merged, resources keep their furthest stage, `withheld`
        adds up, the rest replaces what was noted before. `question`, `filter` and `answer` are sealed for the caller.
        """
        if policy is not None:
            given = {name: value for name, value in msgspec.structs.asdict(policy).items() if value is not None}
            self._policy = msgspec.structs.replace(self._policy, **given)
        for resource in resources:
            key = (resource.document, resource.version, resource.chunk)
            known = self._resources.get(key)
            if known is None or _RANK[resource.stage] > _RANK[known.stage]:
                self._resources[key] = resource
        self._withheld += withheld
        self._cache = cache or self._cache
        self._generation = generation or self._generation
        if microunits is not None:
            self._cost = msgspec.structs.replace(self._cost, microunits=microunits)
        if question is not None:
            self._texts["question"] = question
            if self._principal is not None and self._observer is not None:
                self.course.asks(self._principal, question)
        if filter is not None:
            self._texts["filter"] = filter
        if answer is not None:
            self._texts["answer"] = answer
        self._detail.update(detail or {})

    def belongs(self, root: str) -> None:
        """Group the request with those of `root`, which was not known when the trail was opened."""
        self._request = msgspec.structs.replace(self._request, root=nfc_name(root, "root id"))

    def priced(self, prices: str, basis: Basis) -> None:
        """Name the price list, and which tokens it charges."""
        self._cost = msgspec.structs.replace(self._cost, prices=prices, basis=basis)

    @property
    def microunits(self) -> int:
        """What the request cost so far, as it was noted."""
        return self._cost.microunits or 0

    def hop(self, name: str, milliseconds: float, metered: Metered | None = None) -> None:
        """Add one metered step, which ends now."""
        self.course.step(name, milliseconds)
        cost = self._cost
        self._cost = msgspec.structs.replace(
            cost,
            hops=(*cost.hops, (name, round(milliseconds))),
            metered=(*cost.metered, metered or Metered()),
        )

    def conclude(self, outcome: Outcome, reason: str | None = None) -> None:
        """Decide the outcome where no exception says it, e.g. "revoked" at the end of a stream."""
        self._concluded = (outcome, reason)

    async def intent(self) -> int:
        """Make the intent durable, with all that was noted; returns its sequence number.

        Raises `AuditUnavailable`: then nothing may leave. A second call returns the first one's number.
        """
        if self._intent is None:
            draft, texts = self._draft("intent"), self._take_texts()
            self._intent = self.log.submit(lambda: self._sealed(draft, texts))
        return await self.log.durable(self._intent)

    def withdraw(self, reason: str) -> None:
        """What the intent announced did not leave: close it as `revoked`, and go on with the same request.

        What was noted of policy, resources and cache is forgotten; whatever is to leave now needs another intent.
        """
        intent, self._intent = self._intent, None
        draft, texts = self._draft("outcome", "revoked", reason), self._take_texts()
        self._policy, self._resources, self._withheld, self._cache = Policy(), {}, 0, None
        self.log.submit(
            lambda: self._sealed(_closing(draft, intent), texts),
            fallback=lambda: _closing(_bare(draft), intent),
            after=intent,
        )

    def aside(self, action: str, detail: Mapping[str, Detail]) -> Draft:
        """Another event of this request, for a change of the log itself that has to be on record with it."""
        return Draft(
            action=action,
            phase="outcome",
            outcome="allowed",
            actor=self._actor,
            request=self._request,
            detail=dict(detail),
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        outcome, reason = self._verdict(error)
        self._tell(outcome, reason, error)
        draft, texts, intent = self._draft("outcome", outcome, reason), self._take_texts(), self._intent
        aborted = isinstance(error, _ABORTS)
        try:
            written = self.log.submit(
                lambda: self._sealed(_closing(draft, intent), texts),
                fallback=lambda: _closing(_bare(draft), intent),
                after=intent,
            )
        except AuditUnavailable:
            _logger.critical("audit log %s: an outcome could not be queued", self.log.log_id)
            if aborted:
                return
            raise
        if intent is None and not aborted:
            await self.log.durable(written)

    def _tell(self, outcome: Outcome, reason: str | None, error: BaseException | None) -> None:
        if self._observer is None:
            return
        course = self.course
        self._observer(
            Ended(
                principal=self._principal,
                action=self._action,
                request_id=self._request.id,
                outcome=outcome,
                reason=reason,
                scope=error.scope if isinstance(error, LimitExceeded) else None,
                begun=course.begun,
                took_s=course.took_s,
                first_s=course.first_s,
                queue_s=course.queue_s,
                steps=tuple(course.steps),
                cache=self._cache,
                generation=self._generation,
                detail=self._detail,
                asked=course.asked,
            )
        )

    def _draft(self, phase: Phase, outcome: Outcome | None = None, reason: str | None = None) -> Draft:
        return Draft(
            action=self._action,
            phase=phase,
            outcome=outcome,
            reason=reason,
            actor=self._actor,
            request=self._request,
            policy=None if self._policy == Policy() else self._policy,
            resources=tuple(self._resources.values()),
            withheld=self._withheld,
            cache=self._cache,
            generation=self._generation,
            cost=None if self._cost == Cost() else self._cost,
            detail=dict(self._detail),
        )

    def _verdict(self, error: BaseException | None) -> tuple[Outcome, str | None]:
        """The outcome, and as reason a code or a class name: a message might quote what must not be here."""
        if self._concluded is not None and self._concluded[0] != "allowed":
            return self._concluded
        if error is None:
            return self._concluded or ("allowed", None)
        if isinstance(error, _ABORTS):
            return "aborted", "cancelled"
        if isinstance(error, StrongroomError):
            return "refused" if isinstance(error, _REFUSALS) else "error", error.code
        return "error", type(error).__name__

    def _take_texts(self) -> dict[str, str]:
        """The texts noted since the last record: each is sealed once."""
        taken, self._texts = self._texts, {}
        return taken

    def _sealed(self, draft: Draft, texts: Mapping[str, str]) -> Draft:
        if not texts:
            return draft
        sealed = self.log.subjects.seal(self._actor.ref or "", texts)
        return msgspec.structs.replace(draft, content=Content(**sealed))


def _closing(draft: Draft, intent: Future[int] | None) -> Draft:
    """Runs on the writer, once the intent is written or has failed."""
    if intent is None or intent.exception() is not None:
        return draft
    return msgspec.structs.replace(draft, intent=intent.result())


def _actor(log: AuditLog, principal: Principal | None) -> tuple[Actor, dict[str, str]]:
    """The actor, and the name that is sealed with the first record. An operator may have no user id."""
    if principal is None:
        return Actor(kind="anonymous"), {}
    actor = Actor(
        kind="operator" if principal.method == "operator" else "user",
        ref=log.subjects.ref(principal.user_id or principal.user),
        credential=principal.credential_id,
        method=principal.method,
    )
    return actor, {"user": principal.user}


def _bare(draft: Draft) -> Draft:
    """What must be on record even where the full event cannot be built."""
    return Draft(
        action=draft.action,
        phase=draft.phase,
        outcome=draft.outcome,
        reason=draft.reason,
        actor=draft.actor,
        request=draft.request,
        detail={"incomplete": True},
    )
