"""One tenant's audit log: a dense sequence of records under one Merkle tree, written in groups.

A record is acknowledged after the fsync of the transaction that holds it. Records that arrive while one fsync runs
share the next: no timer. The database's one writer's place is taken before the head is read, so several processes may
append to one log, and the unique `prev` column refuses a fork even if that should fail.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from typing import Any, Final

from sqlalchemy import insert, select, update
from sqlalchemy.engine import Connection
from sqlalchemy.exc import SQLAlchemyError

from audit.checkpoints import RECORDS, checkpoint, checkpoint_in
from audit.marks import Marks
from audit.merkle import EMPTY_ROOT, Frontier, leaf_hash
from audit.migrations import LOG
from audit.record import Draft, Event, check, decode, encode, stamp
from audit.rows import index
from audit.subjects import SubjectKeys
from audit.tables import AUDIT_FILE, columns, events, head, metadata, nodes, open_intents
from tenancy.errors import AuditUnavailable, NotFound, StrongroomError
from tenancy.presence import Presence
from tenancy.tenant import AuditFiles
from tenancy.types import among

MAX_BATCH: Final = 512
_STRETCH: Final = RECORDS - MAX_BATCH
"""The group that passes a multiple of this is signed: so no more than `RECORDS` are ever left unsigned."""
RETRY_S: Final = 0.25

_logger = logging.getLogger(__name__)

# Made once: for a single record, making the statements takes longer than running them.
_STATE: Final = select(head.c.size, head.c.frontier, head.c.last_leaf)
_MOVE_HEAD: Final = update(head)
_ADD_EVENTS: Final = insert(events)
_ADD_NODES: Final = insert(nodes)
_OUTCOMES: Final = select(events.c.intent, events.c.seq).where(among(events.c.intent, "intents"))

Build = Callable[[], Draft]


@dataclass(frozen=True, slots=True)
class Head:
    """The state of a log: how many records, and the Merkle root over them (32 bytes)."""

    size: int
    root: bytes


@dataclass(slots=True, eq=False)
class _Pending:
    build: Build
    fallback: Build | None
    after: Future[int] | None
    future: Future[int] = field(default_factory=Future)
    draft: Draft | None = None

    @property
    def kept(self) -> bool:
        return self.fallback is not None


class AuditLog:
    """The log of `files.tenant_id`. Writes run on `writers`, a small pool shared by all logs of the process.

    `unsigned` holds the ids of those of the process that grew since their last checkpoint.
    """

    def __init__(
        self,
        files: AuditFiles,
        live: Presence,
        writers: Executor,
        *,
        marks: Marks,
        unsigned: set[str] | None = None,
        deadline_s: float = 5.0,
        queue_limit: int = 4_096,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.log_id = files.tenant_id
        self.files = files
        self.database = files.database(AUDIT_FILE, metadata, seed=_empty_head(files.tenant_id), migrations=LOG)
        self.subjects = SubjectKeys(files, clock=clock)
        self.live = live
        self._writers = writers
        self._marks = marks
        self._deadline_s = deadline_s
        self._queue_limit = queue_limit
        self._clock = clock
        self._queue: deque[_Pending] = deque()
        self._submitted = 0
        self._settled = 0
        self._scheduled = False
        self._closed = False
        self._recovered = False
        self._unsigned = set() if unsigned is None else unsigned
        self._state = threading.Condition()

    def submit(self, build: Build, *, fallback: Build | None = None, after: Future[int] | None = None) -> Future[int]:
        """Queue a record; the future gives its sequence number once it is durable.

        `build` runs on a writer thread. A record with a `fallback`, which is used where `build` fails, must not get
        lost: it is retried until it is written or the log is closed. Another fails with `AuditUnavailable` when the
        log cannot be written, and is refused at once when the queue is full; its callers wait for it, so their
        number is the back-pressure. With `after`, an earlier record of this log, `build` runs once that one is
        written or has failed.
        """
        pending = _Pending(build, fallback, after)
        with self._state:
            if self._closed:
                raise self._unavailable("the audit log is closed")
            if not pending.kept and len(self._queue) >= self._queue_limit:
                raise self._unavailable("too many records are waiting")
            self._queue.append(pending)
            self._submitted += 1
            self._schedule()
        return pending.future

    async def durable(self, future: Future[int]) -> int:
        """Wait for a submitted record. Raises `AuditUnavailable` when the deadline passes first.

        Neither the deadline nor a cancellation withdraws the record: it is still written when that becomes possible.
        """
        try:
            # Not `wait_for`, which before Python 3.12 loses a cancellation that comes together with the result.
            async with asyncio.timeout(self._deadline_s):
                return await asyncio.shield(asyncio.wrap_future(future))
        except TimeoutError:
            raise self._unavailable("the record was not durable in time") from None

    def append(self, build: Build) -> int:
        """Submit and wait, for callers without an event loop."""
        try:
            return self.submit(build).result(self._deadline_s)
        except TimeoutError:
            raise self._unavailable("the record was not durable in time") from None

    def flush(self) -> None:
        """Wait until everything submitted before is written. Raises `AuditUnavailable` at the deadline."""
        with self._state:
            goal = self._submitted
            if not self._state.wait_for(lambda: self._settled >= goal, self._deadline_s):
                raise self._unavailable("records are still waiting")

    def close(self) -> None:
        """Write what waits and sign it, then refuse more. What cannot be written is reported and left to recovery."""
        with self._state:
            self._state.wait_for(lambda: self._settled >= self._submitted, self._deadline_s)
            self._closed = True
            lost = list(self._queue)
            self._queue.clear()
        self._abandon(lost)
        self.sign()

    def sign(self) -> None:
        """Sign a checkpoint where this process added records since the last one; says so where that fails."""
        if self.log_id not in self._unsigned:
            return
        # Before the state is read: what is added from now on asks for another one.
        self._unsigned.discard(self.log_id)
        try:
            checkpoint(self)
        except NotFound:
            # The log's files were removed, or its keys destroyed: nobody reads it again.
            return
        except (StrongroomError, SQLAlchemyError, OSError) as error:
            self._unsigned.add(self.log_id)
            self._unsignable(error)

    def now(self) -> float:
        """UTC epoch seconds by the log's clock."""
        return self._clock()

    def head(self) -> Head:
        with self.database.reading() as connection:
            return read_head(connection)

    def recover(self) -> int:
        """Close the intents of dead writers with the outcome "aborted"; returns how many. Live writers' stay."""
        with self.database.writing() as connection:
            recovered = self._recover(connection)
        self._recovered = True
        return recovered

    def erase_traces(self) -> None:
        """Empty the write-ahead logs: who destroyed keys or records may have ended before that."""
        self.database.truncate_wal()
        self.subjects.erase_traces()

    def _schedule(self) -> None:
        if not self._scheduled and self._queue:
            self._scheduled = True
            self._writers.submit(self._drain)

    def _drain(self) -> None:
        """Write one group, then go to the end of the writers' queue, so that no log keeps out the others."""
        with self._state:
            batch = self._take()
        again = self._write([pending for pending in batch if _built(pending)])
        with self._state:
            self._settled += len(batch) - len(again)
            self._scheduled = False
            closed = self._closed
            if again and not closed:
                self._queue.extendleft(reversed(again))
                self._scheduled = True
                timer = threading.Timer(RETRY_S, self._retry)
                timer.daemon = True
                timer.start()
            else:
                self._schedule()
            self._state.notify_all()
        if closed:
            self._abandon(again)

    def _take(self) -> list[_Pending]:
        """The next group: it ends before a record that needs the number of another one in it."""
        batch: list[_Pending] = []
        while self._queue and len(batch) < MAX_BATCH:
            after = self._queue[0].after
            if batch and after is not None and not after.done():
                break
            batch.append(self._queue.popleft())
        return batch

    def _retry(self) -> None:
        with self._state:
            self._scheduled = False
            self._schedule()

    def _write(self, batch: Sequence[_Pending]) -> list[_Pending]:
        """Commit a group; returns the records to try again."""
        if not batch:
            return []
        drafts = [pending.draft for pending in batch if pending.draft]
        try:
            self._marks.opening(self.log_id, sum(draft.phase == "intent" for draft in drafts))
            with self.database.writing() as connection:
                settled = 0 if self._recovered else self._recover(connection)
                numbers = self.append_in(connection, drafts)
                if settled or any(number % _STRETCH == _STRETCH - 1 for number in numbers):
                    self._sign_in(connection)
        except Exception as error:  # noqa: BLE001  whatever went wrong, each waiting caller must hear of it
            _logger.error("audit log %s cannot be written: %s", self.log_id, type(error).__name__)
            for pending in batch:
                if not pending.kept:
                    _fail(pending, self._unavailable("the record could not be written"), error)
            return [pending for pending in batch if pending.kept]
        self._recovered = True
        self._unsigned.add(self.log_id)
        self._marks.closed(self.log_id, sum(draft.intent is not None for draft in drafts))
        for pending, number in zip(batch, numbers, strict=True):
            pending.future.set_result(number)
        return []

    def append_in(self, connection: Connection, drafts: Sequence[Draft]) -> list[int]:
        """Append inside a write transaction; returns the sequence numbers.

        An intent has one outcome. One that was written before, by recovery that took this process for dead or by a
        commit whose acknowledgement was lost, stays, and its number is returned.
        """
        wanted = [draft.intent for draft in drafts if draft.intent is not None]
        earlier = {row.intent: row.seq for row in connection.execute(_OUTCOMES, {"intents": wanted})} if wanted else {}
        state = connection.execute(_STATE).one()
        frontier, prev = Frontier.from_bytes(state.size, state.frontier), state.last_leaf
        rows: list[dict[str, Any]] = []
        subtrees: list[dict[str, Any]] = []
        stamped: list[Event] = []
        numbers: list[int] = []
        for draft in drafts:
            settled = earlier.get(draft.intent)
            numbers.append(frontier.size if settled is None else settled)
            if settled is not None:
                _logger.warning("audit log %s: intent %d had its outcome already", self.log_id, draft.intent)
                continue
            event = stamp(draft, seq=frontier.size, now=self._clock(), log=self.log_id, writer=self.live.id)
            payload = encode(event)
            leaf = leaf_hash(payload)
            rows.append({**columns(event), "payload": payload, "leaf": leaf, "prev": prev})
            stamped.append(event)
            for node in frontier.append(leaf):
                subtrees.append({"level": node.level, "at": node.at, "hash": node.hash})
            prev = leaf
        if not rows:
            return numbers
        connection.execute(_ADD_EVENTS, rows)
        if subtrees:
            connection.execute(_ADD_NODES, subtrees)
        index(connection, stamped)
        connection.execute(
            _MOVE_HEAD,
            {"size": frontier.size, "frontier": frontier.to_bytes(), "root": frontier.root(), "last_leaf": prev},
        )
        self._unsigned.add(self.log_id)
        return numbers

    def _recover(self, connection: Connection) -> int:
        waiting = connection.execute(select(open_intents).order_by(open_intents.c.seq)).all()
        alive = {writer: self.live.alive(writer) for writer in {row.writer for row in waiting}}
        abandoned = [row.seq for row in waiting if not alive[row.writer]]
        drafts = []
        for seq in abandoned:
            payload = connection.execute(select(events.c.payload).where(events.c.seq == seq)).scalar_one()
            drafts.append(_aborted(decode(payload)))
        if drafts:
            self.append_in(connection, drafts)
            _logger.warning("audit log %s: %d abandoned intents closed", self.log_id, len(drafts))
        return len(drafts)

    def _sign_in(self, connection: Connection) -> None:
        """Sign within the writer's transaction. What keeps a checkpoint from being made keeps no record from it."""
        try:
            checkpoint_in(connection, self)
        except StrongroomError as error:
            self._unsignable(error)

    def _unsignable(self, error: Exception) -> None:
        reason = error.reason if isinstance(error, StrongroomError) else type(error).__name__
        _logger.critical("audit log %s has no new checkpoint: %s", self.log_id, reason)

    def _abandon(self, lost: Sequence[_Pending]) -> None:
        if lost:
            _logger.critical("audit log %s closed with %d records unwritten", self.log_id, len(lost))
        for pending in lost:
            _fail(pending, self._unavailable("the log was closed before the record could be written"))

    def _unavailable(self, reason: str) -> AuditUnavailable:
        return AuditUnavailable(reason, item="audit log", remedy="nothing was released; try again")


def read_head(connection: Connection) -> Head:
    row = connection.execute(select(head.c.size, head.c.root)).one()
    return Head(row.size, row.root)


def genesis(log_id: str) -> bytes:
    """The `prev` of the first record, different for each log."""
    return hashlib.sha256(b"strongroom audit log\x00" + log_id.encode()).digest()


def _empty_head(log_id: str) -> Callable[[Connection], None]:
    def seed(connection: Connection) -> None:
        connection.execute(insert(head).values(one=1, size=0, frontier=b"", root=EMPTY_ROOT, last_leaf=genesis(log_id)))

    return seed


def _aborted(intent: Event) -> Draft:
    return Draft(
        action=intent.action,
        phase="outcome",
        outcome="aborted",
        reason="recovered",
        intent=intent.seq,
        actor=intent.actor,
        request=intent.request,
        policy=intent.policy,
        resources=intent.resources,
    )


def _built(pending: _Pending) -> bool:
    """Build the record, by its fallback if need be; False where it was withdrawn or cannot be built."""
    if pending.draft is not None:
        return True
    if not pending.future.set_running_or_notify_cancel():
        return False
    try:
        try:
            pending.draft = check(pending.build())
        except Exception as error:
            if pending.fallback is None:
                raise
            _logger.error("an audit record could not be built in full: %s", type(error).__name__)
            pending.draft = check(pending.fallback())
    except Exception as error:  # noqa: BLE001  the caller that waits for this record gets its error
        pending.future.set_exception(error)
    return pending.draft is not None


def _fail(pending: _Pending, error: AuditUnavailable, cause: BaseException | None = None) -> None:
    error.__cause__ = cause
    if pending.draft is not None or pending.future.set_running_or_notify_cancel():
        pending.future.set_exception(error)
