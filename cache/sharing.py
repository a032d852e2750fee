"""Who can share an answer with whom: permission domains as the directory makes them, and what divides them.

A domain is a set of labels, so two users who read exactly the same documents stand in two domains where the lists name
them in different ways. Only that is avoidable: `Alike` counts it. What a list gives to one user and not to another
divides them rightly; `Divider` says how much, so that nobody looks for the cause in the cache.

The directory's memberships are counted. A user whose credential brings groups of its own may stand in another domain.
Time and memory grow with users, memberships and rows of access lists, not with their products.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import pairwise
from typing import Final, Literal

from pyroaring import BitMap
from sqlalchemy import Row, select

from tenancy.domain import domain_fingerprint
from tenancy.schema import acl, groups, labels, members, users
from tenancy.tenant import ReadView

_List = tuple[tuple[int, str], ...]
"""(label id, effect) of one access list, sorted."""

SIZES: Final = (1, 2, 5, 20, 100)
"""Where the classes of the distribution begin, in users per domain."""


@dataclass(frozen=True, slots=True)
class Domain:
    """`fingerprint` as answers carry it in the audit."""

    fingerprint: str
    users: int


@dataclass(frozen=True, slots=True)
class Alike:
    """Users who read exactly the same documents and yet stand in `domains` of them, all of which could be one.

    `documents` counts those whose lists name some of these users in another way than others; `labels` in how many
    ways. `group` is one of the directory that holds exactly these users today. `names` only where they were asked for.
    """

    users: int
    domains: int
    documents: int
    labels: int
    group: str | None
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Divider:
    """Labels of one kind as a cause of small domains: what the numbers would be if no list named them.

    It measures and does not advise: without the label others read more or less. `single users` takes all `user:`
    labels together. `holders` counts users, `documents` those whose lists name the labels. Who would keep no label
    at all is counted on, as one domain.
    """

    kind: Literal["single users", "group"]
    group: str | None
    labels: int
    holders: int
    documents: int
    domains: int
    alone: int
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Sharing:
    """`users` may read something under a label in use; `outside` hold no such label, and nothing is kept for them.

    `distribution`: (fewest users per domain, domains, users) by the classes of `SIZES`. `attainable` is the least
    number of domains under which everybody reads what they read today.
    """

    users: int
    outside: int
    domains: int
    alone: int
    attainable: int
    distribution: tuple[tuple[int, int, int], ...]
    largest: tuple[Domain, ...]
    alike: tuple[Alike, ...]
    dividers: tuple[Divider, ...]
    by_user: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Fingerprint by user id."""


@dataclass(slots=True)
class _Label:
    kind: str
    ref: str
    holders: BitMap
    documents: BitMap = field(default_factory=BitMap)
    allows: BitMap = field(default_factory=BitMap)
    denies: BitMap = field(default_factory=BitMap)


def sharing(view: ReadView, *, named: bool = False, show: int = 5) -> Sharing:
    """What `view` sees. `named` gives names of users, for an administrator; `show` bounds the lists of findings."""
    people = _People(view)
    used = _used_labels(view, people)
    held: list[list[int]] = [[] for _ in people.ids]
    for label_id in sorted(used):
        for user in used[label_id].holders:
            held[user].append(label_id)
    domains: dict[tuple[int, ...], BitMap] = defaultdict(BitMap)
    for user, mine in enumerate(held):
        if mine:
            domains[tuple(mine)].add(user)
    sizes = sorted(map(len, domains.values()))
    reading = _by_readable(domains, used)
    fingerprints = {mine: domain_fingerprint(view.tenant, mine) for mine in domains}
    first = sorted(domains, key=lambda mine: -len(domains[mine]))[:show]
    return Sharing(
        users=sum(sizes),
        outside=len(people.ids) - sum(sizes),
        domains=len(domains),
        alone=sizes.count(1),
        attainable=len(reading),
        distribution=_distribution(sizes),
        largest=tuple(Domain(fingerprints[mine], len(domains[mine])) for mine in first),
        alike=_alike(domains, reading, used, people, named, show),
        dividers=_dividers(domains, used, people, named, show),
        by_user={people.ids[user]: fingerprints[mine] for mine, who in domains.items() for user in who},
    )


class _People:
    """Users by number, and for each group the users in it, however deeply it is nested."""

    def __init__(self, view: ReadView) -> None:
        rows = view.execute(select(users.c.id, users.c.name).where(~users.c.disabled)).all()
        self.ids = [str(row.id) for row in rows]
        self.names = [str(row.name) for row in rows]
        self.number = {user_id: number for number, user_id in enumerate(self.ids)}
        self.groups = {str(row.id): str(row.name) for row in view.execute(select(groups.c.id, groups.c.name))}
        self.inside: dict[str, BitMap] = {group: BitMap() for group in self.groups}
        edges = []
        for row in view.execute(select(members)):
            if row.member_kind == "group":
                edges.append((str(row.group_id), str(row.member_id)))
            elif row.member_id in self.number:
                self.inside[row.group_id].add(self.number[row.member_id])
        # As often as groups are deeply nested; cycles end, since sets only grow.
        grown = True
        while grown:
            grown = False
            for outer, inner in edges:
                if not self.inside[inner] <= self.inside[outer]:
                    self.inside[outer] |= self.inside[inner]
                    grown = True

    def named(self, who: BitMap) -> tuple[str, ...]:
        return tuple(sorted(self.names[user] for user in who))


def _used_labels(view: ReadView, people: _People) -> dict[int, _Label]:
    """The labels of access lists with their holders. Documents that have one and the same list count as one pattern."""
    used: dict[int, _Label] = {}
    everybody = BitMap(range(len(people.ids)))
    known = {int(row.id): (str(row.kind), str(row.ref)) for row in view.execute(select(labels))}
    patterns: dict[_List, int] = {}
    rows = view.execute(select(acl.c.document_id, acl.c.label_id, acl.c.effect).order_by(acl.c.document_id))
    for document, listed in _lists(rows):
        pattern = patterns.setdefault(listed, len(patterns))
        for label_id, effect in listed:
            label = used.get(label_id)
            if label is None:
                kind, ref = known[label_id]
                holders = everybody if kind == "tenant" else people.inside.get(ref, BitMap())
                if kind == "user":
                    holders = BitMap([people.number[ref]] if ref in people.number else [])
                label = used[label_id] = _Label(kind, ref, holders)
            label.documents.add(document)
            (label.allows if effect == "allow" else label.denies).add(pattern)
    return used


def _lists(rows: Iterable[Row[tuple[int, int, str]]]) -> Iterable[tuple[int, _List]]:
    """(document, its list sorted) from rows (document, label, effect) in the order of documents."""
    document, listed = -1, list[tuple[int, str]]()
    for row in rows:
        if row.document_id != document and listed:
            yield document, tuple(sorted(listed))
            listed = []
        document = row.document_id
        listed.append((row.label_id, row.effect))
    if listed:
        yield document, tuple(sorted(listed))


def _by_readable(
    domains: Mapping[tuple[int, ...], BitMap], used: Mapping[int, _Label]
) -> dict[bytes, list[tuple[int, ...]]]:
    """Domains by what they read: any allow, and no deny."""
    found: dict[bytes, list[tuple[int, ...]]] = defaultdict(list)
    for mine in domains:
        readable = _union(used[label].allows for label in mine)
        readable -= _union(used[label].denies for label in mine)
        found[readable.serialize()].append(mine)
    return found


def _alike(
    domains: Mapping[tuple[int, ...], BitMap],
    reading: Mapping[bytes, list[tuple[int, ...]]],
    used: Mapping[int, _Label],
    people: _People,
    named: bool,
    show: int,
) -> tuple[Alike, ...]:
    """Those who read the same under several domains, most users first."""
    exactly = {inside.serialize(): people.groups[group] for group, inside in people.inside.items()}
    found = []
    nothing = BitMap().serialize()
    classes = [(_union(domains[mine] for mine in same), same) for same in reading.values() if len(same) > 1]
    classes.sort(key=lambda one: -len(one[0]))
    for who, same in classes[: show + 1]:
        if reading.get(nothing) is same:
            continue
        sets = [frozenset(mine) for mine in same]
        differing = sets[0].union(*sets) - sets[0].intersection(*sets)
        found.append(
            Alike(
                users=len(who),
                domains=len(same),
                documents=len(_union(used[label].documents for label in differing)),
                labels=len(differing),
                group=exactly.get(who.serialize()),
                names=people.named(who) if named else (),
            )
        )
    return tuple(found[:show])


def _dividers(
    domains: Mapping[tuple[int, ...], BitMap], used: Mapping[int, _Label], people: _People, named: bool, show: int
) -> tuple[Divider, ...]:
    """All `user:` labels together, and each group's label by itself; those first that divide most."""
    sums = {mine: sum(map(_mark, mine)) for mine in domains}
    sizes = Counter({sums[mine]: len(who) for mine, who in domains.items()})
    singles = {label for label, one in used.items() if one.kind == "user" and one.holders}
    found = []
    if singles:
        joined: Counter[int] = Counter()
        for mine, who in domains.items():
            joined[sums[mine] - sum(_mark(label) for label in mine if label in singles)] += len(who)
        holders = _union(used[label].holders for label in singles)
        documents = _union(used[label].documents for label in singles)
        found.append(
            Divider(
                "single users", None, len(singles), len(holders), len(documents),
                len(joined), list(joined.values()).count(1), people.named(holders) if named else (),
            )
        )  # fmt: skip
    containing: dict[int, list[tuple[int, ...]]] = defaultdict(list)
    for mine in domains:
        for label in mine:
            containing[label].append(mine)
    alone = list(sizes.values()).count(1)
    for label, one in used.items():
        if one.kind != "group" or not one.holders:
            continue
        fewer, lonely = 0, alone
        for mine in containing[label]:
            rest = sums[mine] - _mark(label)
            other = sizes.get(rest, 0)
            if other:
                fewer += 1
                lonely -= (len(domains[mine]) == 1) + (other == 1)
        found.append(
            Divider(
                "group", people.groups.get(one.ref), 1, len(one.holders), len(one.documents),
                len(domains) - fewer, lonely,
            )
        )  # fmt: skip
    found = [divider for divider in found if divider.domains < len(domains)]
    return tuple(sorted(found, key=lambda one: (one.domains, one.alone, one.group or ""))[:show])


def _union(sets: Iterable[BitMap]) -> BitMap:
    return BitMap().union(*sets)


def _mark(label: int) -> int:
    """A number of 128 bits: sets of labels are compared by the sums of their numbers, and parts can be taken away."""
    return int.from_bytes(blake2b(str(label).encode(), digest_size=16).digest(), "big")


def _distribution(sizes: list[int]) -> tuple[tuple[int, int, int], ...]:
    found = []
    for least, next_ in pairwise((*SIZES, 1 << 62)):
        inside = [size for size in sizes if least <= size < next_]
        if inside:
            found.append((least, len(inside), sum(inside)))
    return tuple(found)
