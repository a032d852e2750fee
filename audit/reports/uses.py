"""One request as the log has it: the intent before its bytes, the outcome after them, or one record where there was
nothing to announce.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

import msgspec
from sqlalchemy import select
from sqlalchemy.engine import Connection

from audit.query import Texts, opened, payloads_of
from audit.record import CacheUse, Detail, Event, GenerationUse, Policy, Resource, Sealed, Stage, decode
from audit.tables import events
from tenancy.types import among

Released = Literal["yes", "maybe", "no"]

RANK: Final = {stage: rank for rank, stage in enumerate(get_args(Stage))}
_OUTCOMES: Final = select(events.c.intent, events.c.seq).where(among(events.c.intent, "intents"))


@dataclass(frozen=True, slots=True)
class Use:
    """One request. At least one of both records is there."""

    intent: Event | None
    outcome: Event | None

    @property
    def last(self) -> Event:
        """The record at which a report lists the request."""
        found = self.outcome or self.intent
        assert found is not None
        return found

    @property
    def released(self) -> Released:
        """Whether what the records name left the service. After an intent anything may have, unless the outcome says
        otherwise: a refusal comes before the first byte, and so does the withdrawal of a remembered answer.
        """
        outcome = self.outcome.outcome if self.outcome else None
        if outcome == "allowed":
            return "yes"
        withdrawn = outcome == "revoked" and self.cache is not None and self.cache.status == "hit"
        return "no" if self.intent is None or outcome == "refused" or withdrawn else "maybe"

    @property
    def cache(self) -> CacheUse | None:
        return (self.outcome and self.outcome.cache) or (self.intent and self.intent.cache) or None

    @property
    def generation(self) -> GenerationUse | None:
        return (self.outcome and self.outcome.generation) or (self.intent and self.intent.generation) or None

    @property
    def policy(self) -> Policy:
        return (self.outcome and self.outcome.policy) or (self.intent and self.intent.policy) or Policy()

    @property
    def detail(self) -> Mapping[str, Detail]:
        return {**(self.intent.detail if self.intent else {}), **(self.outcome.detail if self.outcome else {})}

    @property
    def resources(self) -> list[Resource]:
        """Each document and chunk with the furthest stage that it reached in either record."""
        furthest: dict[tuple[str, str | None, str | None], Resource] = {}
        for event in (self.intent, self.outcome):
            for resource in event.resources if event else ():
                place = (resource.document, resource.version, resource.chunk)
                known = furthest.get(place)
                if known is None or RANK[resource.stage] > RANK[known.stage]:
                    furthest[place] = resource
        return list(furthest.values())

    def stages(self) -> dict[str, Stage]:
        """Each document with the furthest stage of any of its chunks."""
        found: dict[str, Stage] = {}
        for resource in self.resources:
            known = found.get(resource.document)
            if known is None or RANK[resource.stage] > RANK[known]:
                found[resource.document] = resource.stage
        return found

    def texts(self, subjects: Texts, *fields: str) -> dict[str, Any]:
        """The text of each of `fields`, None where there is none; `erased` names those that were and are gone."""
        found: dict[str, Any] = dict.fromkeys(fields)
        lost = []
        for event in (self.intent, self.outcome):
            content = msgspec.structs.asdict(event.content) if event and event.content else {}
            for field in fields:
                sealed: Sealed | None = content.get(field)
                if event is not None and sealed is not None:
                    became = opened(subjects, event.actor.ref or "", field, sealed)
                    found[field] = became.get("text")
                    lost += [field] if "text" not in became else []
        return found | {"erased": " ".join(lost) or None}

    def user(self, subjects: Texts) -> str | None:
        """The name of who asked; None where it was erased."""
        name: str | None = self.texts(subjects, "user")["user"]
        return name

    def sealed_under(self) -> set[str]:
        """The ids of the keys of all its texts."""
        contents = [event.content for event in (self.intent, self.outcome) if event and event.content]
        return {sealed.key for one in contents for sealed in msgspec.structs.asdict(one).values() if sealed is not None}

    def who(self, user: str | None) -> dict[str, Any]:
        """The columns that begin every row; `user` is the name of who asked."""
        last = self.last
        return {
            "seq": last.seq,
            "ts": last.ts,
            "user": user,
            "actor": last.actor.ref,
            "action": last.action,
            "outcome": last.outcome,
            "reason": last.reason,
            "released": self.released,
            "request": last.request.id,
        }


def paired(
    connection: Connection, seqs: Sequence[int], size: int, listed: Callable[[Event], bool]
) -> Iterator[tuple[int, Use | None]]:
    """Each record of `seqs` with its other half, of the first `size` records; None for an intent whose outcome is
    `listed`, and for a record that was pruned.
    """
    here = _decoded(connection, seqs)
    intents = [event.seq for event in here.values() if event.phase == "intent"]
    ended = _ends(connection, intents, size)
    begun = [event.intent for event in here.values() if event.phase == "outcome" and event.intent is not None]
    others = _decoded(connection, [seq for seq in (*ended.values(), *begun) if seq not in here])
    known = here | others
    for seq in seqs:
        event = here.get(seq)
        if event is None:
            yield seq, None
        elif event.phase == "intent":
            outcome = known.get(ended.get(seq, -1))
            yield seq, None if outcome is not None and listed(outcome) else Use(event, outcome)
        else:
            yield seq, Use(None if event.intent is None else known.get(event.intent), event)


def _ends(connection: Connection, intents: Sequence[int], size: int) -> dict[int, int]:
    """The outcome of each intent that had one by then."""
    if not intents:
        return {}
    return {row.intent: row.seq for row in connection.execute(_OUTCOMES, {"intents": intents}) if row.seq < size}


def _decoded(connection: Connection, seqs: Sequence[int]) -> dict[int, Event]:
    found = payloads_of(connection, seqs)
    return {seq: decode(payload) for seq, payload in found.items() if payload}
