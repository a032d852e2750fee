"""One crash: a server under clients and a loader beside it, both killed, each at a moment of its own."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import httpx

from tests.faults.victim import Victim
from tests.faults.world import ACCESS, FILES, POSTED, READERS, Folder, Ledger, State, question, text_of, topic_of

WATCHDOG_S = 60
CLIENTS = 3
_LATEST_DELAY_S = 0.02
_LATEST_OPENING_S = 0.3


@dataclass(frozen=True, slots=True)
class Span:
    """A citation, or a passage: `quote` stands from `start` to `end` in that version of the document."""

    document: str
    version: str
    start: int
    end: int
    quote: str


@dataclass(frozen=True, slots=True)
class Seen:
    """What a client has received. `seq` is None where the response does not tell it, or broke off before."""

    kind: str
    request_id: str
    seq: int | None = None
    spans: tuple[Span, ...] = ()


@dataclass
class Tally:
    """Over all crashes: how victims died and in the middle of what, what was received, and what went wrong."""

    moments: Counter[str] = field(default_factory=Counter)
    within: Counter[str] = field(default_factory=Counter)
    cut_off: Counter[str] = field(default_factory=Counter)
    received: Counter[str] = field(default_factory=Counter)
    acknowledged: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    @property
    def kills(self) -> int:
        return self.moments.total()


class Moment:
    """When a victim dies: before a statement inside a write transaction, or after so many responses, or while opening.

    `passed` counts what the victim has said; behind the last of it, and a moment more, comes the kill.
    """

    def __init__(self, dice: Random) -> None:
        self.kind = dice.choices(("statement", "responses", "opening"), (50, 40, 10))[0]
        self.statement = dice.randint(1, 300) if self.kind == "statement" else 0
        self._left = dice.randint(1, 40) if self.kind == "responses" else -1
        self._delay = dice.uniform(0, _LATEST_OPENING_S if self.kind == "opening" else _LATEST_DELAY_S)
        self._lock = threading.Lock()
        self._timers: list[threading.Timer] = []
        self._victim: Victim | None = None

    def of(self, victim: Victim) -> None:
        self._victim = victim
        self._later(WATCHDOG_S)
        if self.kind == "opening":
            self._later(self._delay)

    def passed(self) -> None:
        with self._lock:
            self._left -= 1
            if self._left == 0:
                self._later(self._delay)

    def over(self) -> None:
        """The victim is dead, and nobody may kill its number again."""
        for timer in self._timers:
            timer.cancel()
            timer.join()

    def _later(self, seconds: float) -> None:
        assert self._victim is not None
        timer = threading.Timer(seconds, self._victim.kill)
        self._timers.append(timer)
        timer.start()


class Attack:
    """What lasts over the crashes: the ledger, the folder, the tally, and what clients saw since the last check."""

    def __init__(self, folder: Path, environment: Mapping[str, str], keys: Mapping[str, str]) -> None:
        self.ledger = Ledger()
        self.files = Folder(folder / "files")
        self.files.path.mkdir()
        self.tally = Tally()
        self.seen: list[Seen] = []
        self._folder = folder
        self._environment = environment
        self._keys = keys
        self._http = httpx.Client(trust_env=False, timeout=WATCHDOG_S)

    def close(self) -> None:
        self._http.close()

    def crash(self, dice: Random) -> None:
        """Two kills; returns when both are dead and all that they said was read."""
        moments = {role: Moment(dice) for role in ("server", "loader")}
        victims = {
            role: Victim(role, self._folder, self._environment, moment.statement) for role, moment in moments.items()
        }
        for role, victim in victims.items():
            moments[role].of(victim)
        dead = {role: threading.Event() for role in victims}
        threads = [
            threading.Thread(target=self._use, args=(role, victims[role], moments[role], dead, Random(dice.random())))
            for role in victims
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _use(
        self, role: str, victim: Victim, moment: Moment, dead: Mapping[str, threading.Event], dice: Random
    ) -> None:
        """Work with a victim until it is dead, then count how it died."""
        other = dead["loader" if role == "server" else "server"]
        try:
            (self._serve if role == "server" else self._load)(victim, moment, other, dice)
        except Exception as error:  # noqa: BLE001  an error in a thread must fail the test
            self.tally.wrong.append(f"{role}: {error!r}")
            victim.kill()
        code = victim.wait()
        dead[role].set()
        moment.over()
        victim.close()
        if code != -9:
            self.tally.wrong.append(f"the {role} ended with {code}, see {role}.log")
        self.tally.moments[f"{role}, {moment.kind}"] += 1
        self.tally.within.update(victim.marks.found())

    # The operator

    def _load(self, victim: Victim, moment: Moment, server_dead: threading.Event, dice: Random) -> None:
        """Change files and load them again, until the loader is killed."""
        alive = True
        while alive:
            colour = self._change_files(dice)
            alive = self._ingest(victim, moment, server_dead, colour)

    def _change_files(self, dice: Random) -> str:
        """New texts for some documents, others gone, and at times another access list for all; returns which."""
        wanted = self.files.wanted
        before = next((state.colour for state in wanted.values() if state), "red")
        colour = dice.choice(sorted(ACCESS)) if dice.random() < 0.6 else before
        for number, document in enumerate(f"{topic}.txt" for topic in FILES):
            state = wanted.get(document)
            gone = number > 0 and dice.random() < 0.15
            if gone:
                state = None
            elif state is None or dice.random() < 0.7:
                state = self.ledger.fresh(document, colour)
            else:
                state = State(state.revision, colour)
            self.ledger.intend(document, state)
            self.files.write(document, state)
        return colour

    def _ingest(self, victim: Victim, moment: Moment, server_dead: threading.Event, colour: str) -> bool:
        """One `strongroom ingest`; False where it was cut short."""
        allow, deny = ACCESS[colour]
        lists = [*(f"--allow={label}" for label in allow), *(f"--deny={label}" for label in deny)]
        try:
            victim.orders.send(["ingest", str(self.files.path), "--tenant", "acme", "--prune", "--json", *lists])
        except OSError:
            return False
        for line in victim.lines:
            moment.passed()
            if line == "exit 0":
                for document, state in self.files.wanted.items():
                    self.ledger.settle(document, state)
                self.tally.acknowledged["ingest runs"] += 1
                return True
            self._outcome(line, server_dead)
        return False

    def _outcome(self, line: str, server_dead: threading.Event) -> None:
        found = json.loads(line)
        if "document" not in found:
            return
        if "reason" in found:
            self.tally.wrong.append(line)
            return
        self.ledger.settle(found["document"], self.files.wanted[found["document"]])
        self.tally.acknowledged[found["change"]] += 1
        self.tally.acknowledged["while the server was dead"] += server_dead.is_set()

    # The clients

    def _serve(self, victim: Victim, moment: Moment, loader_dead: threading.Event, dice: Random) -> None:
        """Ask and write over HTTP until the server is killed."""
        line = next(victim.lines, "")
        if not line:
            return
        address = line.removeprefix("listening on ")
        works: Sequence[Callable[[str, Random], Iterator[None]]] = [self._asking] * CLIENTS + [self._posting]
        threads = [
            threading.Thread(target=self._client, args=(work, address, moment, loader_dead, Random(dice.random())))
            for work in works
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _client(
        self,
        work: Callable[[str, Random], Iterator[None]],
        address: str,
        moment: Moment,
        loader_dead: threading.Event,
        dice: Random,
    ) -> None:
        try:
            for _ in work(address, dice):
                moment.passed()
                self.tally.received["while the loader was dead"] += loader_dead.is_set()
        except httpx.TransportError:
            return
        except Exception as error:  # noqa: BLE001  an error in a thread must fail the test
            self.tally.wrong.append(f"client: {error!r}")

    def _asking(self, address: str, dice: Random) -> Iterator[None]:
        while True:
            key = self._keys[dice.choice(sorted(READERS))]
            body: dict[str, Any] = {"query": question(dice.choice([*FILES, *POSTED]))}
            kind = dice.choice(("answer", "answer", "stream", "retrieve"))
            if kind == "stream":
                self._stream(address, key, {**body, "stream": True})
            else:
                path = "/v1/retrieve" if kind == "retrieve" else "/v1/answers"
                response = self._send(kind, "POST", address + path, key, body)
                if response.status_code == 200:
                    self._answered(kind, response.json())
            yield

    def _posting(self, address: str, dice: Random) -> Iterator[None]:
        """One client owns these documents: puts them, changes their lists, deletes them."""
        key = self._keys["loader"]
        while True:
            document = f"posted/{dice.choice(POSTED)}"
            colour = dice.choice(sorted(ACCESS))
            allow, deny = ACCESS[colour]
            states = self.ledger.states.get(document, {None})
            present = next(iter(states)) if len(states) == 1 else None
            drawn = dice.random()
            url = f"{address}/v1/documents/{document}"
            state: State | None
            body: Any
            if drawn < 0.2:
                method, body, state = "DELETE", None, None
            elif drawn < 0.4 and present is not None:
                method, url, body = "PATCH", f"{url}/acl", {"allow": allow, "deny": deny}
                state = State(present.revision, colour)
            else:
                state = self.ledger.fresh(document, colour)
                text = text_of(topic_of(document), state.revision)
                method, body = "PUT", {"text": text, "allow": allow, "deny": deny}
            self.ledger.intend(document, state)
            response = self._send(method.lower(), method, url, key, body, absent=state is None and None in states)
            if response.is_success or response.status_code == 404:
                self.ledger.settle(document, state)
            self.seen.append(Seen(method.lower(), response.headers["x-request-id"]))
            yield

    def _send(self, kind: str, method: str, url: str, key: str, body: Any, *, absent: bool = False) -> httpx.Response:
        with self._cut_off(kind):
            response = self._http.request(method, url, json=body, headers={"Authorization": f"Bearer {key}"})
        self.tally.received[f"{kind} {response.status_code}"] += 1
        if not (response.is_success or (absent and response.status_code == 404) or _is_revoked(response.text)):
            self.tally.wrong.append(f"{kind}: {response.status_code} {response.text}")
        return response

    def _stream(self, address: str, key: str, body: Any) -> None:
        headers = {"Authorization": f"Bearer {key}"}
        with (
            self._cut_off("stream"),
            self._http.stream("POST", f"{address}/v1/answers", json=body, headers=headers) as response,
        ):
            lines = response.iter_lines()
            first = next(lines, "")
            # From the first byte on, the intent has to be on record, even if the rest never comes.
            self.seen.append(Seen("stream begun", response.headers["x-request-id"]))
            text = "\n".join([first, *lines])
        self.tally.received[f"stream {response.status_code}"] += 1
        events = [block.partition("\ndata: ") for block in text.split("\n\n") if block.strip()]
        if events and events[-1][0] == "event: done":
            self._answered("stream", json.loads(events[-1][2]))
        elif not _is_revoked(text):
            self.tally.wrong.append(f"stream: {response.status_code} {text}")

    def _answered(self, kind: str, body: Mapping[str, Any]) -> None:
        found = body["passages"] if kind == "retrieve" else body["citations"]
        spans = tuple(
            Span(
                one["document"],
                one["version"],
                one["start"],
                one["end"],
                one["text" if kind == "retrieve" else "quote"],
            )
            for one in found
        )
        self.seen.append(Seen(kind, body["request_id"], body["audit"]["seq"], spans))
        self.tally.received["citations"] += len(spans)
        self.tally.received["cache hits"] += kind != "retrieve" and body["cache"]["status"] == "hit"

    @contextmanager
    def _cut_off(self, kind: str) -> Iterator[None]:
        """Count the requests that the kill left without an answer; one that was refused was never under way."""
        try:
            yield
        except httpx.ConnectError:
            raise
        except httpx.TransportError:
            self.tally.cut_off[kind] += 1
            raise


def _is_revoked(text: str) -> bool:
    """Access may end between search and answer, as the lists change all the time."""
    return "urn:strongroom:problem:revoked" in text
