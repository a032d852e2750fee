"""Membership of groups as a file from an identity provider has it, brought in as a whole or not at all.

CSV, one membership a line, or JSON Lines, one group a line:

    group,member                        {"group": "hr", "members": ["user:ana", "group:payroll"]}
    hr,ana                              {"group": "payroll", "members": []}
    hr,group:payroll                    {"end": true, "groups": 2}
    payroll,

A bare member is a user. In CSV a line without a member names an empty group. Each group of the file has exactly the
members that the file gives it; groups that it does not name stay as they are, or lose theirs where the file is said to
be complete. The last line of JSON Lines may say how many groups went before it, as in CSV a line `#end,2` does: a file
that was cut at the end of a line is known by that alone.
"""

from __future__ import annotations

import csv
import hashlib
import io
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
from sqlalchemy import delete, insert, select

from tenancy import directory
from tenancy.errors import InvalidInput
from tenancy.names import nfc_name
from tenancy.schema import meta
from tenancy.tenant import ReadView, WriteView

META_KEY: Final = "membership"
MAX_BYTES: Final = 256 * 2**20
MOST_REMOVED: Final = 0.2
"""Share of the memberships that a file may take away without being asked for it."""
_FREE: Final = 10
"""So many may always be taken away: of a few memberships, one is already a large share."""

_END: Final = "#end"
_KINDS: Final = ("user", "group")
_FIRST: Final = "let it be the first line; if the file is an error page or empty, fetch it again"

Member = tuple[str, str]
"""Kind and NFC name."""


@dataclass(frozen=True, slots=True)
class Membership:
    """Members by group; `digest` is the file's SHA-256."""

    groups: Mapping[str, frozenset[Member]]
    digest: str


@dataclass(frozen=True, slots=True)
class Changes:
    """What a file changes, by group: (group, kind and name of the member)."""

    added: tuple[tuple[str, Member], ...] = ()
    removed: tuple[tuple[str, Member], ...] = ()
    before: int = field(default=0)

    @property
    def share(self) -> float:
        """Which share of the memberships goes."""
        return len(self.removed) / self.before if self.before else 0.0


def read_membership(data: bytes, name: str, *, require_end: bool = False) -> Membership:
    """The membership in a file called `name` (.csv, .jsonl, .ndjson), checked as a whole.

    Raises `InvalidInput` naming file and line, for whatever is not certain: a line that does not fit, no line end
    behind the last one, fewer groups than the file says that it has, no group at all; with `require_end` also where it
    does not say how many it has.
    """
    if len(data) > MAX_BYTES:
        raise InvalidInput(f"has more than {MAX_BYTES >> 20} MiB", item=name, remedy="import it in parts")
    suffix = name.rpartition(".")[2].lower()
    lines = {"csv": _csv_lines, "jsonl": _json_lines, "ndjson": _json_lines}.get(suffix)
    if lines is None:
        raise InvalidInput("is neither CSV nor JSON Lines", item=name, remedy="name it .csv or .jsonl")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidInput(f"is not UTF-8 at byte {error.start}", item=name, remedy="save it as UTF-8") from None
    if text and not text.endswith("\n"):
        raise InvalidInput(
            "ends in the middle of a line", item=name, remedy="fetch it again; a whole file ends with a line end"
        )
    groups: dict[str, set[Member]] = {}
    expected: int | None = None
    for where, line in lines(text, name):
        if expected is not None:
            raise InvalidInput("goes on behind its end", item=where, remedy="write the file anew")
        if isinstance(line, int):
            expected = line
            continue
        group, members = line
        try:
            held = groups.setdefault(nfc_name(group, "group"), set())
            held.update(_member(member) for member in members)
        except InvalidInput as error:
            raise InvalidInput(error.reason, item=where, remedy=error.remedy or "correct the line") from None
    if expected is None and require_end:
        raise InvalidInput(
            "does not say how many groups it has", item=name, remedy='end it with {"end": true, "groups": N} or #end,N'
        )
    if expected not in {None, len(groups)}:
        raise InvalidInput(
            f"says that it has {expected} groups and has {len(groups)}", item=name, remedy="fetch it again, it is cut"
        )
    if not groups:
        raise InvalidInput(
            "names no group",
            item=name,
            remedy="to empty a group, name it without members; else see where it comes from",
        )
    whole = {group: frozenset(members) for group, members in groups.items()}
    return Membership(whole, hashlib.sha256(data).hexdigest())


def compare(view: ReadView, wanted: Membership, *, complete: bool) -> Changes:
    """What `wanted` would change. With `complete`, groups that it does not name lose all members."""
    present = {
        group: frozenset(_member(member) for member in members)
        for group, members in directory.list_groups(view).items()
    }
    named = set(wanted.groups) | (set(present) if complete else set())
    added, removed = [], []
    for group in sorted(named):
        after, before = wanted.groups.get(group, frozenset()), present.get(group, frozenset())
        added += [(group, member) for member in sorted(after - before)]
        removed += [(group, member) for member in sorted(before - after)]
    return Changes(tuple(added), tuple(removed), sum(map(len, present.values())))


def check_removed(changes: Changes, most_removed: float = MOST_REMOVED) -> None:
    """Raises `InvalidInput` where more than the share `most_removed` of all memberships, and more than a few, would go:
    a file that is half there looks like many who left. With 0, none may go.
    """
    if len(changes.removed) > (_FREE if most_removed else 0) and changes.share > most_removed:
        raise InvalidInput(
            f"takes away {len(changes.removed)} of {changes.before} memberships, more than {most_removed:.0%}",
            item="membership",
            remedy="see whether the file is whole; if it is, allow more with --most-removed",
        )


def bring_in(
    view: WriteView, wanted: Membership, now: float, *, complete: bool = False, most_removed: float = MOST_REMOVED
) -> Changes:
    """Make the directory what `wanted` says, in the caller's transaction.

    Raises `InvalidInput`, having changed nothing, where `check_removed` does.
    """
    changes = compare(view, wanted, complete=complete)
    check_removed(changes, most_removed)
    for group in sorted(wanted.groups):
        directory.ensure_group(view, group, now)
    for group, members in _by_group(changes.added).items():
        directory.add_members(view, group, members, now)
    for group, members in _by_group(changes.removed).items():
        directory.remove_members(view, group, members)
    _remember(
        view,
        {
            "at": now,
            "digest": wanted.digest,
            "groups": len(wanted.groups),
            "added": len(changes.added),
            "removed": len(changes.removed),
            "failed": None,
        },
    )
    return changes


def last_import(view: ReadView) -> dict[str, Any] | None:
    """When membership last came in, with the file's hash and its figures; under `failed` what was refused since."""
    found: dict[str, Any] | None = view.execute(select(meta.c.value).where(meta.c.key == META_KEY)).scalar_one_or_none()
    return found


def note_failure(view: WriteView, reason: str, now: float) -> None:
    """Note that a file was refused and the last good one holds."""
    before = last_import(view) or {"at": None}
    _remember(view, {**before, "failed": {"at": now, "reason": reason}})


def _remember(view: WriteView, value: dict[str, Any]) -> None:
    view.execute(delete(meta).where(meta.c.key == META_KEY))
    view.execute(insert(meta).values(key=META_KEY, value=value))


def _by_group(changes: tuple[tuple[str, Member], ...]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for group, (kind, name) in changes:
        found.setdefault(group, []).append(f"{kind}:{name}")
    return found


def _member(text: str) -> Member:
    kind, colon, name = text.partition(":")
    if not colon:
        return "user", nfc_name(text, "user")
    if kind not in _KINDS:
        raise InvalidInput(f"{text[:200]!r} is no member", remedy="write user:NAME, group:NAME or a bare user name")
    return kind, nfc_name(unicodedata.normalize("NFC", name), kind)


class _Group(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    group: str
    members: list[str]


class _End(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    end: bool
    groups: int


_Line = tuple[str, list[str]] | int
"""A group and members of it, or how many groups there are."""


def _json_lines(text: str, name: str) -> Iterator[tuple[str, _Line]]:
    seen: set[str] = set()
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        where = f"{name}, line {number}"
        try:
            plain = msgspec.json.decode(line)
            if isinstance(plain, dict) and "end" in plain:
                yield where, msgspec.convert(plain, _End).groups
                continue
            found = msgspec.convert(plain, _Group)
        except (msgspec.DecodeError, RecursionError) as error:
            remedy = 'a line is {"group": NAME, "members": [NAME, ...]}'
            raise InvalidInput(str(error), item=where, remedy=remedy) from None
        key = unicodedata.normalize("NFC", found.group)
        if key in seen:
            raise InvalidInput(f"{key[:200]!r} is there twice", item=where, remedy="give each group one line")
        seen.add(key)
        yield where, (found.group, found.members)


def _csv_lines(text: str, name: str) -> Iterator[tuple[str, _Line]]:
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        header = [cell.strip().lower() for cell in next(reader, [])]
        if header != ["group", "member"]:
            raise InvalidInput("does not begin with the line group,member", item=name, remedy=_FIRST)
        for row in reader:
            where = f"{name}, line {reader.line_num}"
            cells = [cell.strip() for cell in row]
            if not any(cells):
                continue
            if len(cells) != 2:
                raise InvalidInput(f"has {len(cells)} cells and not 2", item=where, remedy="write GROUP,MEMBER")
            group, member = cells
            if group == _END:
                if not (member.isascii() and member.isdigit()):
                    raise InvalidInput(f"{member[:20]!r} is no number of groups", item=where, remedy="write #end,N")
                yield where, int(member)
            else:
                yield where, (group, [member] if member else [])
    except csv.Error as error:
        where = f"{name}, line {reader.line_num}"
        raise InvalidInput(f"is not valid CSV: {error}", item=where, remedy="check the quotes") from None
