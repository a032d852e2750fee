"""Who may read what is ingested: a rules file by folder, and a manifest by document.

Rules (TOML). The **last** rule whose path matches decides alone, as in .gitignore and CODEOWNERS: nothing is
merged, so what a rule says is what holds. Without a match the default applies; without a default, nobody reads.

    [default]
    allow = ["tenant"]

    [[rule]]
    path = "hr/**"
    allow = ["group:hr"]
    deny = ["user:bo"]

Paths are those of documents: relative, with "/", compared in Unicode NFC and with case. `*` and `?` stay inside one
folder, `[a-z]` is one character, `**` as a whole part is any number of folders; "hr/**" is everything below hr.
`allow` is required; `allow = []` lets nobody read.

Manifest (CSV or JSON Lines), one document a line, over the rules:

    path,title,allow,deny,metadata.year          {"path": "hr/pay.pdf", "title": "Pay", "allow": ["user:ana"],
    hr/pay.pdf,Pay,user:ana;group:hr,,2024        "deny": [], "metadata": {"year": 2024}}

An absent `allow` or `deny` (in CSV an empty cell) leaves that side as the rules have it; in CSV the word `none` is
the empty list. Metadata from CSV is text.
"""

from __future__ import annotations

import csv
import io
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from indexing.globs import Glob, document_path, relative_path
from indexing.parse.model import MAX_TITLE, Scalar
from tenancy.acl import AccessList
from tenancy.errors import InvalidInput
from tenancy.names import as_seen, document_name

T = TypeVar("T")

_SEPARATOR: Final = ";"
_NONE: Final = "none"
_METADATA: Final = "metadata."
_SIMPLE: Final = "use [[rule]] and [default] alone"
_COLUMNS: Final = ("path", "title", "allow", "deny")


@dataclass(frozen=True, slots=True)
class Decision:
    """What holds for one document. `by` names the rule or line; None where nothing matched and nobody may read."""

    access: AccessList
    by: str | None
    title: str | None = None
    metadata: Mapping[str, Scalar] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Rule:
    where: str
    glob: Glob
    access: AccessList


@dataclass(frozen=True, slots=True)
class _Entry:
    """A line of the manifest. `allow` or `deny` None: as the rules have it."""

    where: str
    allow: frozenset[str] | None
    deny: frozenset[str] | None
    title: str | None
    metadata: Mapping[str, Scalar]

    def over(self, access: AccessList) -> AccessList:
        return AccessList(
            access.allow if self.allow is None else self.allow, access.deny if self.deny is None else self.deny
        )


class AccessRules:
    """Rules and manifest, checked as a whole when they are read."""

    def __init__(self, rules: Path | None = None, manifest: Path | None = None) -> None:
        """Raises `InvalidInput` naming the file, the rule or line, the reason and the remedy."""
        self._rules, self._default = _read_rules(rules) if rules is not None else ([], None)
        self._entries = _read_manifest(manifest) if manifest is not None else {}

    def decide(self, path: str, nearer: Decision | None = None) -> Decision:
        """The access list of the document `path` (relative, with "/"). `nearer` stands in the place of the rules: what
        a file in the document's folder says; the manifest's lines come over that, too.

        Raises `InvalidInput` where a rule or line that gives another list fits the name as somebody reads it, but not
        as it is.
        """
        name = document_path(path)
        found = nearer or self._by_rule(name)
        entry = self._entries.get(name)
        if (alike := as_seen(name)) != name:
            self._require_told_apart(name, alike, entry, found.access, by_rule=nearer is None)
        if entry is None:
            return found
        # A line that says nothing about access does not turn "nobody decided" into a decision.
        silent = entry.allow is None and entry.deny is None and found.by is None
        return Decision(entry.over(found.access), None if silent else entry.where, entry.title, entry.metadata)

    def _by_rule(self, name: str) -> Decision:
        position = self._last(name)
        rule = self._default if position is None else self._rules[position]
        return Decision(AccessList(), None) if rule is None else Decision(rule.access, rule.where)

    def _last(self, name: str) -> int | None:
        """The position of the rule that decides about `name`; None where that is the default."""
        return next((at for at in reversed(range(len(self._rules))) if self._rules[at].glob.matches(name)), None)

    def _require_told_apart(
        self, name: str, alike: str, entry: _Entry | None, access: AccessList, *, by_rule: bool
    ) -> None:
        read = self._entries.get(alike)
        if entry is None and read is not None and read.over(access) != access:
            raise _only_alike(name, read.where)
        if by_rule and (entry is None or entry.allow is None or entry.deny is None):
            position, own = self._last(alike), self._last(name)
            # A later rule that fits the name as it is was written for it.
            if position is not None and (own is None or own < position) and self._rules[position].access != access:
                raise _only_alike(name, self._rules[position].where)

    def unused(self, paths: Iterable[str]) -> list[str]:
        """The rules and lines that fit none of `paths`: a misspelt one protects nothing."""
        names = set()
        for path in paths:
            # What failed for its name, and a folder that is named as a whole, are no documents.
            with suppress(InvalidInput):
                names.add(document_path(path))
        rules = [rule.where for rule in self._rules if not any(rule.glob.matches(name) for name in names)]
        return rules + [entry.where for path, entry in self._entries.items() if path not in names]


class _RuleTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    path: str
    allow: list[str]
    deny: list[str] = []


class _DefaultTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    allow: list[str]
    deny: list[str] = []


class _ManifestLine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    path: str
    title: str | None = None
    allow: list[str] | None = None
    deny: list[str] | None = None
    metadata: dict[str, Scalar] = {}


def _read_rules(path: Path) -> tuple[list[_Rule], _Rule | None]:
    try:
        tables = tomllib.loads(_read(path))
    except tomllib.TOMLDecodeError as error:
        raise InvalidInput(f"is not valid TOML: {error}", item=path.name, remedy="correct the line") from None
    except (ValueError, RecursionError):
        raise InvalidInput("is nested too deeply, or holds an endless number", item=path.name, remedy=_SIMPLE) from None
    unknown = sorted(set(tables) - {"rule", "default"})
    if unknown:
        raise InvalidInput(f"has an unknown key {unknown[0]!r}", item=path.name, remedy=_SIMPLE)
    listed = tables.get("rule", [])
    if not isinstance(listed, list):
        raise InvalidInput("[rule] is a list", item=path.name, remedy="write [[rule]] with two brackets")
    rules = []
    for number, table in enumerate(listed, 1):
        where = f"{path.name}, rule {number}"
        rule = _convert(table, _RuleTable, where, "a rule has path, allow and optionally deny")
        rules.append(_Rule(where, _checked_glob(rule.path, where), _access(rule.allow, rule.deny, where)))
    if "default" not in tables:
        return rules, None
    where = f"{path.name}, default"
    default = _convert(tables["default"], _DefaultTable, where, "the default has allow and optionally deny")
    return rules, _Rule(where, Glob("**"), _access(default.allow, default.deny, where))


def _read_manifest(path: Path) -> dict[str, _Entry]:
    """Entries by path."""
    lines = {".csv": _csv_lines, ".jsonl": _json_lines, ".ndjson": _json_lines}.get(path.suffix.lower())
    if lines is None:
        raise InvalidInput("is neither CSV nor JSON Lines", item=path.name, remedy="name it .csv or .jsonl")
    entries: dict[str, _Entry] = {}
    for where, line in lines(path):
        try:
            name = relative_path(line.path, "manifest")
            title = document_name(line.title, "title", limit=MAX_TITLE) if line.title is not None else None
        except InvalidInput as error:
            raise _at(where, error) from None
        if name in entries:
            raise InvalidInput(
                f"{name!r} is already in {entries[name].where}", item=where, remedy="keep one of the two lines"
            )
        access = _access(line.allow or [], line.deny or [], where)
        entries[name] = _Entry(
            where,
            access.allow if line.allow is not None else None,
            access.deny if line.deny is not None else None,
            title,
            line.metadata,
        )
    return entries


def _json_lines(path: Path) -> Iterator[tuple[str, _ManifestLine]]:
    for number, text in enumerate(io.StringIO(_read(path), newline="\n"), 1):
        if text.strip():
            where = f"{path.name}, line {number}"
            try:
                yield where, msgspec.json.decode(text, type=_ManifestLine)
            except (msgspec.DecodeError, RecursionError) as error:
                raise InvalidInput(str(error), item=where, remedy=_LINE_REMEDY) from None


def _csv_lines(path: Path) -> Iterator[tuple[str, _ManifestLine]]:
    reader = csv.DictReader(io.StringIO(_read(path), newline=""), strict=True, restkey=_METADATA)
    try:
        columns = [column.strip() for column in reader.fieldnames or ()]
        _check_columns(columns, path.name)
        reader.fieldnames = columns
        for row in reader:
            where = f"{path.name}, line {reader.line_num}"
            if row.pop(_METADATA, None) is not None:
                raise InvalidInput("has more cells than the header", item=where, remedy="quote cells that hold a comma")
            cells = {column: (cell or "").strip() for column, cell in row.items()}
            yield (
                where,
                _ManifestLine(
                    cells["path"],
                    cells.get("title") or None,
                    _cell_labels(cells.get("allow", "")),
                    _cell_labels(cells.get("deny", "")),
                    {
                        column.removeprefix(_METADATA): cell
                        for column, cell in cells.items()
                        if cell and column not in _COLUMNS
                    },
                ),
            )
    except csv.Error as error:
        raise InvalidInput(
            f"is not valid CSV: {error}", item=f"{path.name}, line {reader.reader.line_num}", remedy="check the quotes"
        ) from None


_LINE_REMEDY: Final = 'a line is {"path", "title"?, "allow"?, "deny"?, "metadata"?}'


def _check_columns(columns: list[str], file: str) -> None:
    for column in columns:
        known = column in _COLUMNS or (column.startswith(_METADATA) and column != _METADATA)
        if not known or columns.count(column) > 1:
            raise InvalidInput(
                f"has an unknown or repeated column {column!r}",
                item=file,
                remedy=f"columns are {', '.join(_COLUMNS)} and {_METADATA}NAME",
            )
    if "path" not in columns:
        raise InvalidInput("has no column path", item=file, remedy="let the first line name the columns")


def _cell_labels(cell: str) -> list[str] | None:
    if not cell:
        return None
    if cell.lower() == _NONE:
        return []
    return [label.strip() for label in cell.split(_SEPARATOR) if label.strip()]


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise InvalidInput(f"cannot be read: {error.strerror}", item=str(path), remedy="check the path") from None
    except UnicodeDecodeError:
        raise InvalidInput("is not UTF-8", item=path.name, remedy="save it as UTF-8") from None


def _convert(table: object, kind: type[T], where: str, remedy: str) -> T:
    try:
        return msgspec.convert(table, kind)
    except msgspec.ValidationError as error:
        raise InvalidInput(str(error), item=where, remedy=remedy) from None


def _checked_glob(pattern: str, where: str) -> Glob:
    try:
        return Glob(pattern)
    except InvalidInput as error:
        raise _at(where, error) from None


def _access(allow: list[str], deny: list[str], where: str) -> AccessList:
    try:
        return AccessList.of(allow, deny)
    except InvalidInput as error:
        remedy = error.remedy or "write user:NAME, group:NAME or tenant"
        raise InvalidInput(f"{error.item!r}: {error.reason}", item=where, remedy=remedy) from None


def _only_alike(name: str, where: str) -> InvalidInput:
    return InvalidInput(
        f"{where} fits this name as it is read, but not as it is: blanks or unseen characters differ",
        item=name,
        remedy="rename the file, or write a rule behind that one that fits it; ? stands for one character",
    )


def _at(where: str, error: InvalidInput) -> InvalidInput:
    return InvalidInput(error.reason, item=where, remedy=error.remedy)
