"""Each action is done to the service and told to the oracle; then both are asked, and must agree."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from httpx import Response

from tenancy import directory
from tenancy.identity import Role
from tests.isolation.agreement import MARKS, Tally, agree, current, done, place, version
from tests.isolation.deployment import Deployment
from tests.isolation.oracle import Company, Document, Given, Label

USERS = ("ana", "bo", "cy", "dee", "eve", "fay")
GROUPS = ("red", "blue", "green", "gray")
# The last three users stand in no access list by name, so that they can be of one domain; the last group only denies.
ALLOWED = ("tenant", *(f"group:{name}" for name in GROUPS[:3]), *(f"user:{name}" for name in USERS[:3]))
DENIED = ("group:gray", "group:red", "group:blue", "user:ana", "user:bo", "tenant")
MEMBERS = (*(f"user:{name}" for name in USERS), *(f"group:{name}" for name in GROUPS))
# Of six letters each, unlike in stem and spelling, and in no word list of the cache's guards.
TOPICS = ("anchor", "barley", "copper", "dahlia", "falcon", "garnet", "indigo", "walnut")
SLOTS = 8
ARCHIVE = 110
"""Paragraphs of a document that nobody may read: more than the rows that a search asks its index for."""

# Equal words in another order, so that similarity is 1, and one with a filler that carries nothing.
WORDINGS = (
    "What does the note say about {}?",
    "About {}, what does the note say?",
    "what does the note  say about {}",
    "Please, what does the note say about {}?",
)
Meaning = tuple[tuple[str, ...], int]

_runs = count(1)


@dataclass
class Side:
    """One tenant, as the service and as the oracle know it. `keys` holds those of deleted users, too."""

    name: str
    number: int
    company: Company
    loader: str
    auditor: str
    keys: dict[Label, str]
    marks: set[str] = field(default_factory=set)
    texts: defaultdict[str, list[tuple[str, ...]]] = field(default_factory=lambda: defaultdict(list))
    suspended_at: int = 0

    @property
    def users(self) -> list[Label]:
        return [self.company.label(f"user:{name}") for name in USERS]


class World:
    """A few tenants of a deployment and their oracles."""

    def __init__(self, deployment: Deployment, tally: Tally) -> None:
        self._deployment = deployment
        self._tally = tally
        self._run = next(_runs)
        self._secrets = count()
        self.sides: list[Side] = []

    # What is done

    def found(self, *, opened: bool, archive: bool) -> None:
        """A new tenant with its users; with `archive`, many rows that are near to every question and unreadable."""
        number = len(self.sides)
        name = f"r{self._run}t{number}"
        self._deployment.create(name)
        keys = {("user", user, 0): self._deployment.key(name, user, Role.READER) for user in USERS}
        loader = self._deployment.key(name, "loader", Role.INGEST)
        auditor = self._deployment.key(name, "auditor", Role.AUDITOR)
        side = Side(name, number, Company(), loader, auditor, keys)
        self.sides.append(side)
        if opened:
            self.toggle_template(side)
        if archive:
            deny = ["tenant"] if number % 2 else []
            self.write(side, SLOTS, [TOPICS[at % 5 :][:4] for at in range(ARCHIVE)], ["tenant"] if deny else [], deny)

    def write(
        self, side: Side, slot: int, paragraphs: Iterable[Sequence[str]], allow: Sequence[str], deny: Sequence[str]
    ) -> None:
        """Add a document or replace it, with a secret of this version in every paragraph."""
        secret = f"qz{self._run}x{next(self._secrets)}z"
        texts = tuple(f"Note {secret}: {' '.join(topics)}." for topics in paragraphs)
        self._put(side, _document(side, self._run, slot), texts, allow, deny)

    def restore(self, side: Side, slot: int, at: int, allow: Sequence[str], deny: Sequence[str]) -> None:
        """An earlier version of a document comes back, also of a deleted one."""
        name = _document(side, self._run, slot)
        if earlier := side.texts[name]:
            self._put(side, name, earlier[at % len(earlier)], allow, deny)

    def _put(
        self, side: Side, name: str, paragraphs: tuple[str, ...], allow: Sequence[str], deny: Sequence[str]
    ) -> None:
        document = Document(paragraphs, *(frozenset(map(side.company.label, labels)) for labels in (allow, deny)))
        title = f"Title {MARKS.findall(paragraphs[0])[0]}"
        body = {"text": document.text, "title": title, "allow": list(allow), "deny": list(deny)}
        side.marks.update(MARKS.findall(title))
        if not side.company.active:
            self._require_refused(side, self._load(side, "PUT", name, body))
            return
        with self._changing(side):
            agree(self._load(side, "PUT", name, body).status_code == 200, "a document was not taken")
            side.company.documents[name] = document
            side.texts[name].append(paragraphs)

    def delete(self, side: Side, slot: int) -> None:
        name = _document(side, self._run, slot)
        if not side.company.active:
            self._require_refused(side, self._load(side, "DELETE", name))
            return
        if name not in side.company.documents:
            agree(self._load(side, "DELETE", name).status_code == 404, "an absent document was deleted")
            return
        with self._changing(side):
            agree(self._load(side, "DELETE", name).status_code == 200, "a document was not deleted")
            del side.company.documents[name]

    def set_access(self, side: Side, slot: int, allow: Sequence[str], deny: Sequence[str]) -> None:
        name = _document(side, self._run, slot)
        body = {"allow": list(allow), "deny": list(deny)}
        if not side.company.active:
            self._require_refused(side, self._load(side, "PATCH", f"{name}/acl", body))
        elif found := side.company.documents.get(name):
            with self._changing(side):
                agree(self._load(side, "PATCH", f"{name}/acl", body).status_code == 200, "a list was not taken")
                labels = (frozenset(map(side.company.label, listed)) for listed in (allow, deny))
                side.company.documents[name] = Document(found.paragraphs, *labels)

    def join(self, side: Side, group: str, member: str) -> None:
        if side.company.active:
            with self._changing(side):
                self._deployment.change(side.name, lambda view, now: directory.add_members(view, group, [member], now))
                side.company.members.add((side.company.label(f"group:{group}"), side.company.label(member)))

    def leave(self, side: Side, at: int) -> None:
        """Undo one of the present memberships."""
        members = sorted(side.company.members)
        if side.company.active and members:
            group, (kind, name, _) = members[at % len(members)]
            with self._changing(side):
                self._deployment.change(
                    side.name, lambda view, _: directory.remove_members(view, group[1], [f"{kind}:{name}"])
                )
                side.company.members.remove(members[at % len(members)])

    def delete_group(self, side: Side, name: str) -> None:
        label = side.company.label(f"group:{name}")
        known = {one for pair in side.company.members for one in pair}
        known |= {one for document in side.company.documents.values() for one in document.allow | document.deny}
        if side.company.active and label in known:
            with self._changing(side):
                self._deployment.change(side.name, lambda view, _: directory.delete_group(view, name))
                side.company.delete(label)

    def replace_user(self, side: Side, name: str) -> None:
        """A user is deleted, and another one of the same name gets a key."""
        if side.company.active:
            with self._changing(side):
                self._deployment.change(side.name, lambda view, _: directory.delete_user(view, name))
                side.company.delete(side.company.label(f"user:{name}"))
                label = side.company.label(f"user:{name}")
                side.keys[label] = self._deployment.key(side.name, name, Role.READER)

    def toggle_template(self, side: Side) -> None:
        if side.company.active:
            change = self._deployment.close_template if side.company.opened else self._deployment.open_template
            change(side.name)
            side.company.opened = not side.company.opened

    def toggle_status(self, side: Side) -> None:
        side.company.active = not side.company.active
        self._deployment.set_status(side.name, "active" if side.company.active else "suspended")
        side.suspended_at = self._tally.steps

    def restart(self) -> None:
        self._deployment.restart()
        self._tally.restarts += 1

    @contextmanager
    def _changing(self, side: Side) -> Iterator[None]:
        """Around a change: whoever lost a document looks for it at once, in the index and in what was remembered."""
        company = side.company
        before = {user: (company.readable(user), company.domain(user)) for user in side.keys}
        yield
        company.state += 1
        checked = 0
        for user, (readable, domain) in before.items():
            now = company.readable(user)
            lost = {(name, one.text) for name, one in readable.items()} - {
                (name, one.text) for name, one in now.items()
            }
            self._tally.grants += bool(now.keys() - readable.keys())
            if lost and checked < 2:
                checked += 1
                self.retrieve(side, user, TOPICS[:3], "dense", 100)
                self._ask_for_lost(side, user, domain, lost)
                self._tally.revocations += 1

    def _ask_for_lost(self, side: Side, user: Label, domain: frozenset[Label], lost: set[tuple[str, str]]) -> None:
        """Repeat the newest question whose remembered answer rests on what `user` has just lost."""
        for given in side.company.given[::-1]:
            if given.kept and given.domain == domain and given.cited & lost:
                self._ask(side, user, given.meaning, given.wording)
                return

    # What is asked

    def retrieve(self, side: Side, user: Label, query: Iterable[str], mode: str, top_k: int) -> None:
        """Exactly the readable passages come back, verbatim, in the right number, lexical ones in the right order."""
        company, text = side.company, " ".join(query)
        side.marks.update(MARKS.findall(text))
        body = {"query": text, "mode": mode, "top_k": top_k}
        response = self._deployment.request("POST", "/v1/retrieve", side.keys[user], body)
        self._require_no_leak(side, user, response, text)
        if not company.active:
            self._require_refused(side, response)
            return
        agree(response.status_code == 200, f"retrieve failed: {response.text}")
        found = response.json()["passages"]
        readable = company.readable(user)
        keys = [place(readable, passage) for passage in found]
        rows = {(name, at) for name, one in readable.items() for at in range(len(one.paragraphs))}
        agree(len(set(keys)) == len(keys), "a passage came back twice")
        scores = company.bm25(user, text)
        expected = scores.keys() if mode == "lexical" else rows
        agree(len(keys) == min(top_k, len(expected)), f"{len(keys)} of {len(expected)} readable passages, k={top_k}")
        agree(set(keys) <= expected, "a passage without any of the words came back")
        if mode == "lexical":
            for key, passage in zip(keys, found, strict=True):
                agree(abs(passage["score"] - scores[key]) < 1e-6, f"score {passage['score']}, not {scores[key]}")
        if mode != "dense":
            # Without a model that knows the language, the lexical leg alone ranks; the rest follows behind it.
            ranked = [scores.get(key, 0.0) for key in keys]
            best = sorted((scores.get(key, 0.0) for key in expected), reverse=True)[: len(ranked)]
            agree(all(abs(a - b) < 1e-6 for a, b in zip(ranked, best, strict=True)), f"order {ranked}, not {best}")
        self._tally.positive_finds += bool(expected)

    def ask(
        self, side: Side, user: Label, topics: Sequence[str], wording: int, top_k: int, cache: str, *, stream: bool
    ) -> None:
        topics = sorted(set(topics))
        text = WORDINGS[wording].format(" and ".join(topics))
        self._ask(side, user, (tuple(topics), top_k), text, cache, stream=stream)

    def ask_again(self, side: Side, at: int, colleague: int, wording: int | None) -> None:
        """A colleague of the same domain repeats or (with `wording`) rephrases one of the latest answered questions."""
        company = side.company
        open_ = [one for one in company.given[:-9:-1] if one.kept]
        if open_ and company.active:
            given = open_[at % len(open_)]
            same = [user for user in side.users if company.domain(user) == given.domain] or side.users
            topics, _ = given.meaning
            text = given.wording if wording is None else WORDINGS[wording].format(" and ".join(topics))
            self._ask(side, same[colleague % len(same)], given.meaning, text)

    def _ask(
        self, side: Side, user: Label, meaning: Meaning, wording: str, cache: str = "default", *, stream: bool = False
    ) -> None:
        topics, top_k = meaning
        company = side.company
        body = {"query": wording, "top_k": top_k, "cache": cache, "stream": stream}
        response = self._deployment.request("POST", "/v1/answers", side.keys[user], body)
        self._require_no_leak(side, user, response, wording)
        if not company.active:
            self._require_refused(side, response)
            return
        agree(response.status_code == 200, f"answer failed: {response.text}")
        answer = done(response) if stream else response.json()
        readable = company.readable(user)
        for citation in answer["citations"]:
            text = current(readable, citation)
            agree(
                text[citation["start"] : citation["end"]] == citation["quote"] != "", "a quote is not in its document"
            )
        cited = frozenset((one["document"], readable[one["document"]].text) for one in answer["citations"])
        spoken = " ".join(wording.split())
        self._tally.answers += 1
        if answer["cache"]["status"] == "hit":
            self._require_rightly_repeated(company, user, meaning, spoken, cache, answer, cited)
            return
        self._require_rightly_afresh(company, user, meaning, spoken, cache, answer)
        texts = [paragraph for one in readable.values() for paragraph in one.paragraphs]
        if any(all(topic in text for topic in topics) for text in texts):
            agree(bool(cited), "a question was not answered that a readable passage answers")
            self._tally.positive_finds += 1
        elif not texts:
            agree(answer["finish"] == "abstain" and not cited, "an answer came from nothing")
        kept = bool(cited) and answer["finish"] == "stop" and cache != "bypass"
        domain, state = company.domain(user), company.state
        company.given.append(Given(meaning, spoken, domain, answer["answer"], cited, kept, state))

    def _require_rightly_repeated(
        self, company: Company, user: Label, meaning: Meaning, wording: str, cache: str, answer: Any, cited: object
    ) -> None:
        kind = answer["cache"]["kind"]
        agree(cache == "default", f"{cache} was answered from the cache")
        allowed = [
            one
            for one in company.may_repeat(user, meaning)
            if one.kept and (one.text, one.cited) == (answer["answer"], cited)
        ]
        if kind == "exact":
            allowed = [one for one in allowed if one.wording == wording]
            self._tally.exact_hits += 1
        else:
            agree(company.opened, "a semantic hit without an opening")
            agree(answer["cache"]["certified"] == "uncertified", "a semantic hit does not say that it is uncertified")
            self._tally.semantic_hits += 1
        agree(bool(allowed), f"{kind} hit: no answer of this domain to this question may be repeated")

    def _require_rightly_afresh(
        self, company: Company, user: Label, meaning: Meaning, wording: str, cache: str, answer: Any
    ) -> None:
        if cache != "default":
            return
        fresh = company.must_repeat(user, meaning)
        agree(all(one.wording != wording for one in fresh), "the same question of the same domain missed the cache")
        agree(not (fresh and company.opened), "a paraphrase in the same domain missed the cache")

    def list_documents(self, side: Side) -> None:
        """Those who load documents see all of their own tenant and none of another."""
        response = self._deployment.request("GET", "/v1/documents?limit=1000", side.loader)
        foreign = set(MARKS.findall(response.text)) - side.marks
        agree(not foreign, f"a listing of {side.name} names {sorted(foreign)}")
        if not side.company.active:
            self._require_refused(side, response)
            return
        listed = {one["id"]: one["version"] for one in response.json()["documents"]}
        agree(listed == {name: version(one) for name, one in side.company.documents.items()}, "a listing is wrong")

    def peek(self, side: Side, user: Label, owner: Side, slot: int) -> None:
        """A reader may not show documents at all; who loads them gets another tenant's as if it were absent."""
        name = _document(owner, self._run, slot)
        response = self._deployment.request("GET", f"/v1/documents/{name}", side.keys[user])
        self._require_no_leak(side, user, response, name)
        agree(response.status_code == 403, "a reader was shown a document as those see it who load it")
        response = self._load(side, "GET", name)
        if not side.company.active:
            self._require_refused(side, response)
        else:
            there = owner is side and name in side.company.documents
            agree(response.status_code == (200 if there else 404), "a document that is not there was shown")

    def read_audit(self, side: Side) -> None:
        """Auditors see what was asked in their own tenant and nothing of another, also while it is suspended."""
        response = self._deployment.request("GET", "/v1/audit/events?limit=50", side.auditor)
        foreign = set(MARKS.findall(response.text)) - side.marks
        agree(not foreign, f"the audit of {side.name} names {sorted(foreign)}")
        if side.company.active:
            agree(response.status_code == 200, f"the audit cannot be read: {response.text}")

    def _load(self, side: Side, method: str, name: str, body: dict[str, Any] | None = None) -> Response:
        side.marks.update(MARKS.findall(name))
        return self._deployment.request(method, f"/v1/documents/{name}", side.loader, body)

    def _require_refused(self, side: Side, response: Response) -> None:
        self._tally.refusals += 1
        refused = (response.status_code, response.json().get("code")) == (403, "tenant-suspended")
        agree(refused, f"{side.name} is suspended, and answered {response.status_code}")

    def _require_no_leak(self, side: Side, user: Label, response: Response, asked: str) -> None:
        """No secret and no name of a document that `user` may not read now, wherever in the response."""
        readable = side.company.readable(user) if side.company.active else {}
        allowed = set(MARKS.findall(asked)) | readable.keys()
        allowed.update(mark for one in readable.values() for mark in MARKS.findall(one.paragraphs[0]))
        shown = set(MARKS.findall(response.text + repr(response.headers)))
        agree(shown <= allowed, f"{user[1]} of {side.name} was shown {sorted(shown - allowed)}")
        agree(not self._deployment.logged, f"log lines name {sorted(self._deployment.logged)}")


def _document(side: Side, run: int, slot: int) -> str:
    return f"nq{run}t{side.number}d{slot}q"
