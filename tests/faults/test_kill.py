"""kill -9 of the server and of `strongroom ingest` at random moments, under clients; `make torture` does it 200 times.

What a killed process had handed to the kernel stays, so this is about the product's order of writing, not about disks
that lose what they acknowledged. After each crash, which is a kill of both, everything is opened afresh: the files are
sound, each document is whole and in a state that was asked for, nothing that was acknowledged is lost, each answer
that a client received rests on a version that was there and on a durable intent, the audit chain verifies, remembered
answers cite what is there now, and the next ingestion completes what was cut short.
"""

from __future__ import annotations

import asyncio
import base64
import os
import random
import secrets
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import aclosing, contextmanager
from pathlib import Path

import numpy as np
import pytest
from sqlalchemy import select, text

from audit.log import AuditLog
from audit.query import Filters, query_log
from audit.record import decode
from audit.verify import verify
from cache.stores import tables as cache_tables
from indexing.acl_rules import Decision
from indexing.batch import ingest_paths
from indexing.chunk import chunk
from indexing.outcome import Change
from indexing.terms import pack, term_postings
from indexing.walk import Found
from retrieval.answer import answer
from retrieval.question import Answer, AnswerEvent, Done, Question
from service.settings import load_settings
from service.wiring import Services, build
from tenancy import schema
from tenancy.acl import AccessList, get_access_list
from tenancy.control import Tenants
from tenancy.identity import Role
from tenancy.keys import MasterKey
from tenancy.tenant import ReadView, TenantHandle
from tests.faults import victim
from tests.faults.attack import Attack
from tests.faults.world import ACCESS, FILES, POSTED, READERS, State, question, text_of, topic_of, version_of

KILLS = int(os.environ.get("TORTURE_KILLS", "20"))
MASTER = bytes(range(32))
LISTS = {AccessList.of(*labels): colour for colour, labels in ACCESS.items()}
# A document may be gone already, and access to a source may end while its answer is streamed.
EXPECTED = {"delete": {"allowed", "refused"}, "stream begun": {"allowed", "refused", "revoked"}}
# Crashes that are followed by another one before anything is checked.
AGAIN = 0.2


def environment(folder: Path) -> dict[str, str]:
    unlimited = {
        f"STRONGROOM_ADMISSION__{scope}__{limit}": "1000000000"
        for scope in ("TENANT", "USER")
        for limit in ("REQUESTS_PER_MINUTE", "CONCURRENT", "TOKENS_PER_MINUTE")
    }
    return {
        "STRONGROOM_DATA_DIR": str(folder / "data"),
        "STRONGROOM_MASTER_KEY": base64.b64encode(MASTER).decode(),
        "STRONGROOM_EMBEDDING__MODEL": "hashing:64",
        "STRONGROOM_AUDIT__DEADLINE_S": "60",
        "STRONGROOM_SERVER__PORT": "0",
        **unlimited,
    }


def make_tenant(folder: Path) -> dict[str, str]:
    """Create the tenant and its users; returns the keys."""
    tenants = Tenants(folder / "data", MasterKey(MASTER))
    tenants.create("acme")
    keys = {user: tenants.create_key("acme", user, [Role.READER], groups=["red", "blue"]).text for user in READERS}
    keys["loader"] = tenants.create_key("acme", "loader", [Role.INGEST]).text
    tenants.close()
    return keys


@contextmanager
def opened(folder: Path) -> Iterator[Services]:
    services = build(load_settings(environment=environment(folder)), MasterKey(MASTER))
    try:
        yield services
    finally:
        services.close()


class Check:
    """Everything that must hold after a crash, over freshly opened files."""

    def __init__(self, services: Services, attack: Attack, keys: dict[str, str]) -> None:
        self.services = services
        self.attack = attack
        self.counts: Counter[str] = Counter()
        self._keys = keys
        self._operator = services.control.authenticator.operator("acme")
        self._tenant: TenantHandle = services.control.tenants.open(self._operator)

    def all(self) -> None:
        log = self.services.control.logs.of(self._operator)
        self.audit(log)
        self.audit(self.services.control.logs.of(None))
        self.received(log)
        self.documents()
        self.ask_again()
        self.complete()
        self.documents()
        self.files(log)

    def audit(self, log: AuditLog) -> None:
        """The chain verifies, but for intents that died without an outcome, which recovery closes."""
        before = verify(log)
        assert before.ok or (before.finding and before.finding.kind == "unsettled"), before
        after = verify(log, recover=True)
        assert after.ok, after
        assert after.in_flight == 0
        self.counts["intents closed by recovery"] += after.recovered

    def received(self, log: AuditLog) -> None:
        """What clients received was on record before, and rests on versions that are or were there."""
        with self._tenant.reading() as view:
            stored = {(row.document, row.version) for row in view.execute(select(schema.versions))}
        for seen in self.attack.seen:
            found = query_log(log, Filters(request=seen.request_id, order="asc"), limit=10).events
            *withdrawn, intent, outcome = events = [decode(one.payload) for one in found]
            assert [event.phase for event in events] == ["intent", "outcome"] * (len(events) // 2), seen
            # A hit that did not pass its last check never left: its intent is closed, and the request went on.
            assert {event.outcome for event in withdrawn[1::2]} <= {"revoked"}, (seen, withdrawn)
            pairs = zip(events[::2], events[1::2], strict=True)
            assert all(closing.intent == begun.seq for begun, closing in pairs), seen
            # The outcome is written behind the response, so the kill may come between.
            recovered = (outcome.outcome, outcome.reason) == ("aborted", "recovered")
            assert recovered or outcome.outcome in EXPECTED.get(seen.kind, {"allowed"}), (seen, outcome)
            assert seen.seq in (None, intent.seq), seen
            for span in seen.spans:
                whole = self.attack.ledger.texts[span.document, span.version]
                assert whole[span.start : span.end] == span.quote
                assert (span.document, span.version) in stored, seen
        self.counts["responses on record"] += len(self.attack.seen)
        self.attack.seen.clear()

    def documents(self) -> None:
        """Each document is one text and one access list as a whole, of a state that was asked for; none is missing."""
        ledger = self.attack.ledger
        present = self.present()
        for document, states in ledger.states.items():
            assert present.get(document) in states, (document, present.get(document), states)
            ledger.settle(document, present.get(document))
        assert present.keys() <= ledger.states.keys()
        self.counts["documents checked"] += len(present)

    def present(self) -> dict[str, State]:
        with self._tenant.reading() as view:
            rows = view.execute(select(schema.documents)).all()
            found = {row.name: self._state(view, row.id, row.name, row.version) for row in rows}
            live = view.execute(select(schema.versions).where(schema.versions.c.retired.is_(None))).all()
            owners = set(view.execute(select(schema.chunks.c.document_id)).scalars())
            newest = view.execute(text("SELECT max(seq) FROM changes")).scalar()
            assert view.epochs.changes == (newest or 0)
        assert sorted((row.document_id, row.version) for row in live) == sorted((row.id, row.version) for row in rows)
        assert owners == {row.id for row in rows}
        return found

    def _state(self, view: ReadView, document_id: int, document: str, version: str) -> State:
        """The document's rows against what its text alone gives."""
        whole = self.attack.ledger.texts[document, version]
        wanted = chunk(whole)
        assert len(wanted) > 2
        mine = schema.chunks.c.document_id == document_id
        query = select(schema.chunks, schema.vectors.c.vector).join(schema.vectors).where(mine)
        rows = view.execute(query.order_by(schema.chunks.c.ordinal)).all()
        assert [(row.ordinal, row.start, row.end, row.text) for row in rows] == [
            (piece.ordinal, piece.start, piece.end, piece.text) for piece in wanted
        ]
        vectors = self.services.path.embedders.default.encode([piece.text for piece in wanted])
        assert np.array_equal(np.stack([np.frombuffer(row.vector, "<f4") for row in rows]), vectors)
        assert [row.terms for row in rows] == [pack(term_postings(piece.text)) for piece in wanted]
        recorded = (schema.versions.c.document_id == document_id) & schema.versions.c.retired.is_(None)
        assert view.execute(select(schema.versions.c.chunks).where(recorded)).scalar_one() == len(wanted)
        revision = next(
            number for number in _numbers(whole) if version_of(text_of(topic_of(document), number)) == version
        )
        return State(revision, LISTS[get_access_list(view, document_id)])

    def ask_again(self) -> None:
        """Every question of every user: what is cited, from the cache or not, is there now and is theirs to read."""
        present = self.present()
        for user, colours in READERS.items():
            for document in [*(f"{topic}.txt" for topic in FILES), *(f"posted/{topic}" for topic in POSTED)]:
                found = self._ask(user, question(topic_of(document)))
                for citation in found.citations:
                    state = present[citation.document]
                    whole = text_of(topic_of(citation.document), state.revision)
                    assert citation.version == version_of(whole)
                    assert whole[citation.start : citation.end] == citation.quote
                    assert state.colour in colours, (user, citation)
                self.counts["questions asked again"] += 1
                if found.cache.status == "hit":
                    # It may be older than the document that would answer better: what it rests on is unchanged.
                    self.counts["answers kept over a crash"] += 1
                    continue
                readable = document in present and present[document].colour in colours
                assert readable == (document in {citation.document for citation in found.citations}), (user, document)

    def _ask(self, user: str, query: str) -> Answer:
        principal = self.services.control.authenticator.authenticate(self._keys[user], "192.0.2.1")

        async def last() -> AnswerEvent:
            asked = Question(query, secrets.token_hex(16))
            async with aclosing(answer(self.services.path, principal, asked)) as events:
                return [event async for event in events][-1]

        done = asyncio.run(last())
        assert isinstance(done, Done)
        return done.answer

    def complete(self) -> None:
        """The next ingestion ends what was cut short, and the one after it finds nothing to do."""
        wanted = self.attack.files.wanted
        counts: Counter[Change] = Counter()
        for turn in range(2):
            outcomes = list(
                ingest_paths(
                    self._tenant,
                    self.services.pipeline,
                    [self.attack.files.path],
                    self._decide,
                    lambda: None,
                    prune=True,
                )
            )
            assert not [outcome for outcome in outcomes if outcome.error is not None]
            counts = Counter(outcome.change for outcome in outcomes)
            self.counts["documents completed"] += 0 if turn else counts.total() - counts[Change.NONE]
        assert counts.keys() <= {Change.NONE}
        for document, state in wanted.items():
            self.attack.ledger.settle(document, state)

    def _decide(self, entry: Found) -> Decision:
        state = self.attack.files.wanted[entry.lies]
        assert state is not None
        return Decision(AccessList.of(*ACCESS[state.colour]), by="test")

    def files(self, log: AuditLog) -> None:
        """SQLite's and SQLCipher's own checks of every file, and the totals that the cache keeps."""
        stats = self.services.path.cache.stats(self._tenant)
        kept = self.services.path.cache.inspect(self._tenant, limit=1000)
        assert (stats.entries, stats.bytes) == (len(kept), sum(entry.bytes for entry in kept))
        databases = [
            self._tenant.data,
            cache_tables.database(self._tenant),
            self.services.control.tenants._control,
            log.database,
            log.subjects._database,
        ]
        for database in databases:
            with database.reading() as connection:
                assert connection.exec_driver_sql("PRAGMA cipher_integrity_check").all() == [], database.path
                assert connection.exec_driver_sql("PRAGMA integrity_check").scalars().all() == ["ok"], database.path
                assert connection.exec_driver_sql("PRAGMA foreign_key_check").all() == [], database.path


def _numbers(whole: str) -> Iterator[int]:
    """The revision stands in the first sentence."""
    yield int(whole.split("allowance is ")[1].split()[0]) - 100


def show(attack: Attack, counts: Counter[str], seed: int, seconds: float) -> None:
    tally = attack.tally
    print(f"\n{tally.kills} kills in {seconds:.0f} s, seed {seed}")
    for title, found in (
        ("moments", tally.moments),
        ("killed within", tally.within),
        ("requests cut off", tally.cut_off),
        ("received", tally.received),
        ("acknowledged", tally.acknowledged),
        ("checked", counts),
    ):
        print(f"  {title}: " + ", ".join(f"{name} {number:,}" for name, number in sorted(found.items()) if number))


@pytest.mark.slow
@pytest.mark.timeout(max(300, 30 * KILLS))
def test_nothing_is_lost_or_half_done_after_kill_9(tmp_path: Path) -> None:
    seed = int(os.environ.get("TORTURE_SEED") or random.randrange(2**32))
    dice = random.Random(seed)
    keys = make_tenant(tmp_path)
    victim.preload()
    attack = Attack(tmp_path, environment(tmp_path), keys)
    counts: Counter[str] = Counter()
    begun = time.monotonic()
    try:
        while attack.tally.kills < KILLS:
            attack.crash(dice)
            assert attack.tally.wrong == []
            if dice.random() < AGAIN and attack.tally.kills < KILLS:
                continue
            with opened(tmp_path) as services:
                check = Check(services, attack, keys)
                check.all()
                counts += check.counts
    finally:
        attack.close()
        show(attack, counts, seed, time.monotonic() - begun)
    tally = attack.tally
    # A run that killed nobody in the middle of anything would prove nothing.
    assert tally.within["tenant.sqlite"] > 0
    assert tally.within["ingest"] > 0
    assert tally.cut_off.total() > 0
    assert tally.acknowledged.total() > tally.kills
    assert tally.received["citations"] > tally.kills
    assert counts["answers kept over a crash"] > 0
    assert counts["documents completed"] > 0
    assert counts["intents closed by recovery"] > 0
