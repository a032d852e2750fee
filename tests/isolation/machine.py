"""The Hypothesis state machine: which actions, in which order, on whom. What they do is in `world`."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from tests.isolation.agreement import MARKS, Tally
from tests.isolation.deployment import Deployment
from tests.isolation.oracle import Label, words
from tests.isolation.world import (
    ALLOWED,
    DENIED,
    GROUPS,
    MEMBERS,
    SLOTS,
    TOPICS,
    USERS,
    WORDINGS,
    Side,
    World,
)

SUSPENDED_STEPS = 4

_number = st.integers(0, 11)
_slot = st.integers(0, SLOTS - 1)
_some = st.lists(st.sampled_from(ALLOWED), min_size=1, max_size=3, unique=True)
_allow: st.SearchStrategy[list[str]] = st.one_of(_some, _some, _some, st.just([]))
_denying = st.lists(st.sampled_from(DENIED), min_size=1, max_size=2, unique=True)
_deny: st.SearchStrategy[list[str]] = st.one_of(st.just([]), _denying)
_topics = st.lists(st.sampled_from(TOPICS), min_size=1, max_size=2, unique=True)
_paragraph = st.lists(st.sampled_from(TOPICS), min_size=4, max_size=6)
_paragraphs = st.lists(_paragraph, min_size=1, max_size=3)
_mode = st.sampled_from(("dense", "lexical", "hybrid"))
_top_k = st.sampled_from((3, 1, 8, 100))
_wording = st.integers(0, len(WORDINGS) - 1)


class Isolation(RuleBasedStateMachine):
    """A run of actions on two to four tenants; `deployment` and `tally` are shared by all runs."""

    deployment: ClassVar[Deployment]
    tally: ClassVar[Tally]

    def __init__(self) -> None:
        super().__init__()
        self.world = World(self.deployment, self.tally)

    @initialize(opened=st.lists(st.sampled_from((True, True, False)), min_size=2, max_size=4), archive=_number)
    def found(self, opened: list[bool], archive: int) -> None:
        for number, one in enumerate(opened):
            self.world.found(opened=one, archive=number == archive % 4)
            for slot in (0, 1):
                self.world.write(self.world.sides[number], slot, [TOPICS[2 * slot :][:5]], ALLOWED[:1], [])

    @rule(tenant=_number, slot=_slot, paragraphs=_paragraphs, allow=_allow, deny=_deny)
    def write(self, tenant: int, slot: int, paragraphs: list[list[str]], allow: list[str], deny: list[str]) -> None:
        self.world.write(self._side(tenant), slot, paragraphs, allow, deny)

    @rule(tenant=_number, slot=_slot, paragraph=_paragraph)
    def publish(self, tenant: int, slot: int, paragraph: list[str]) -> None:
        self.world.write(self._side(tenant), slot, [paragraph], ["tenant"], [])

    @rule(tenant=_number, slot=_slot, allow=_allow, deny=_deny)
    def set_access(self, tenant: int, slot: int, allow: list[str], deny: list[str]) -> None:
        self.world.set_access(self._side(tenant), slot, allow, deny)

    @rule(tenant=_number, group=st.sampled_from(GROUPS), member=st.sampled_from(MEMBERS))
    def join(self, tenant: int, group: str, member: str) -> None:
        self.world.join(self._side(tenant), group, member)

    @rule(tenant=_number, slot=_slot, group=st.sampled_from(GROUPS[::-1]), member=st.sampled_from(MEMBERS))
    def shut_out(self, tenant: int, slot: int, group: str, member: str) -> None:
        """A document for everybody but one group, which somebody joins."""
        side = self._side(tenant)
        self.world.set_access(side, slot, ALLOWED[:1], [f"group:{group}"])
        self.world.join(self._side(tenant), group, member)

    @rule(tenant=_number, at=_number)
    def leave(self, tenant: int, at: int) -> None:
        self.world.leave(self._side(tenant), at)

    @rule(tenant=_number, slot=_slot, at=_number)
    def replace(self, tenant: int, slot: int, at: int) -> None:
        """A document goes, or an earlier version of one comes back."""
        side = self._side(tenant)
        if at < 4:
            self.world.delete(side, slot)
        else:
            self.world.restore(side, slot, at, ALLOWED[at % 3 : at % 3 + 1], [])

    @rule(tenant=_number, group=st.sampled_from(GROUPS), user=st.sampled_from(USERS), which=_number)
    def rarely(self, tenant: int, group: str, user: str, which: int) -> None:
        """What comes seldom, most of it because it ends much at once."""
        side = self._side(tenant)
        member = side.company.label(f"user:{user}")
        if which in (0, 1):
            self.world.delete_group(side, group)
            self.world.join(side, group, f"user:{user}")
            self.world.retrieve(side, member, TOPICS[:2], "dense", 100)
        elif which in (2, 3):
            self.world.replace_user(side, user)
            self.world.retrieve(side, member, TOPICS[:2], "dense", 100)
        elif which in (4, 5) and side.company.active:
            self.world.toggle_status(side)
        elif which == 6:
            self.world.restart()
        elif which == 7:
            self.world.toggle_template(side)
        elif which == 8:
            self.world.list_documents(side)
        elif which == 9:
            owner = self.world.sides[(tenant + len(group)) % len(self.world.sides)]
            self.world.peek(side, member, owner, tenant % 3)
        else:
            self.world.read_audit(side)

    @rule(tenant=_number, user=_number, query=_topics, mode=_mode, top_k=_top_k)
    def retrieve(self, tenant: int, user: int, query: list[str], mode: str, top_k: int) -> None:
        side = self._side(tenant)
        self.world.retrieve(side, self._user(side, user), query, mode, top_k)

    @rule(tenant=_number, user=_number, other=_number, slot=_slot, mode=_mode)
    def hunt(self, tenant: int, user: int, other: int, slot: int, mode: str) -> None:
        """Search for the very secret of a document, readable or not, also of another tenant."""
        side, owner = self._side(tenant), self.world.sides[other % len(self.world.sides)]
        documents = sorted(owner.company.documents.items())
        secrets = [MARKS.findall(one.paragraphs[0])[0] for _, one in documents] or ["nothing"]
        self.world.retrieve(side, self._user(side, user), [secrets[slot % len(secrets)]], mode, 8)

    @rule(tenant=_number, user=_number, topics=_topics, wording=_wording, top_k=st.sampled_from((8, 3)))
    def ask(self, tenant: int, user: int, topics: list[str], wording: int, top_k: int) -> None:
        side = self._side(tenant)
        self.world.ask(side, self._user(side, user), topics, wording, top_k, "default", stream=False)

    @rule(
        tenant=_number,
        user=_number,
        topics=_topics,
        cache=st.sampled_from(("default", "refresh", "bypass")),
        stream=st.booleans(),
    )
    def ask_otherwise(self, tenant: int, user: int, topics: list[str], cache: str, stream: bool) -> None:
        side = self._side(tenant)
        self.world.ask(side, self._user(side, user), topics, 0, 8, cache, stream=stream)

    @rule(tenant=_number, at=_number, colleague=_number, wording=st.one_of(st.none(), _wording))
    def repeat(self, tenant: int, at: int, colleague: int, wording: int | None) -> None:
        self.world.ask_again(self._side(tenant), at, colleague, wording)

    @rule(tenant=_number, slot=_slot, user=_number, colleague=_number, wording=_wording)
    def share(self, tenant: int, slot: int, user: int, colleague: int, wording: int) -> None:
        """A reader of a document asks what it answers, colleagues ask the same, and then in other words."""
        side = self._side(tenant)
        if not any(side.company.readable(one) for one in side.users):
            self.publish(tenant, slot, list(TOPICS[:5]))
        seen = [(one, text) for one in side.users for text in side.company.readable(one).values()]
        asker, document = seen[(SLOTS * user + slot) % len(seen)] if seen else (side.users[0], None)
        topics = words(document.paragraphs[0])[2:4] if document else TOPICS[:1]
        self.world.ask(side, asker, topics, wording, 8, "default", stream=False)
        for later in (0, 1, 2):
            peers = [one for one in side.users if side.company.domain(one) == side.company.domain(asker)] or [asker]
            peer, again = peers[(colleague + later) % len(peers)], (wording + later) % len(WORDINGS)
            self.world.ask(self._side(tenant), peer, topics, again, 8, "default", stream=False)

    def teardown(self) -> None:
        error = sys.exception()
        if isinstance(error, Exception) and self.tally.first_difference is None:
            self.tally.first_difference = (self.tally.steps, f"{type(error).__name__}: {error}")

    def _side(self, number: int) -> Side:
        """The tenant that the next step is about. One that has been suspended for long enough is woken."""
        self.tally.steps += 1
        for side in self.world.sides:
            if not side.company.active and self.tally.steps - side.suspended_at > SUSPENDED_STEPS:
                self.world.toggle_status(side)
        return self.world.sides[number % len(self.world.sides)]

    def _user(self, side: Side, number: int) -> Label:
        """One of the present users, or, at the higher numbers, of all that ever had a key."""
        users = side.users if number < 10 else sorted(side.keys)
        return users[number % len(users)]


@contextmanager
def deployed() -> Iterator[Deployment]:
    """A deployment in memory where there is such a file system: durability is tested elsewhere."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(prefix="strongroom-", dir=memory if memory.is_dir() else None) as directory:
        deployment = Deployment(Path(directory), MARKS)
        try:
            yield deployment
        finally:
            deployment.stop()


def drive(deployment: Deployment, tally: Tally, *, runs: int, steps: int, number: int, shrink: bool = True) -> None:
    """`runs` runs of `steps` actions from the seed `number`. Raises `Difference`."""
    machine = seed(number)(type("Isolation", (Isolation,), {"deployment": deployment, "tally": tally}))
    phases = (Phase.generate, Phase.shrink) if shrink else (Phase.generate,)
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=runs,
            stateful_step_count=steps,
            database=None,
            deadline=None,
            phases=phases,
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
        ),
    )
