"""Access lists of documents whose new content cannot be read: what is forbidden now must not wait for it.

What is allowed now waits: the list is of the new file, and whoever may put an empty one in a document's place need not
be allowed to read the document.

What a mail or an archive held stands under the list of the whole file, also while it is kept for want of a newer text.
A line of JSON Lines may have a list of its own, which nobody can tell from the file's without reading it: lines keep
what they have.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from indexing import documents
from indexing.documents import Stored
from indexing.outcome import Outcome
from indexing.prepared import Prepared, Relist, Wanted
from tenancy.acl import AccessList
from tenancy.tenant import TenantHandle

_LINE_TYPE: Final = "application/x-ndjson"
_LINES: Final = (".jsonl", ".ndjson")
_HELD: Final = re.compile(r"#(?:member|message|attachment-[0-9]+)/")


def relist(tenant: TenantHandle, failure: Outcome, access: AccessList) -> list[Relist | Outcome]:
    """The failure of a file of which nothing could be read, with the list that its documents have from now on."""
    name = unicodedata.normalize("NFC", failure.document)
    with tenant.reading() as view:
        family = documents.stored_family(view, name)
    wanted = Wanted(access.allow, access.deny, narrower=True)
    own = family.pop(name, None)
    first = (
        failure
        if own is None or wanted.over(own.access) == own.access
        else Relist(name, own, own.origin, wanted, failure)
    )
    return [first, *_kept(name, family, wanted)]


def relisted(file: str, prepared: Sequence[Prepared], family: Mapping[str, Stored], wanted: Wanted) -> list[Prepared]:
    """`prepared` of a file of which a part failed, with new lists for what it does not replace of its `family`."""
    wanted = replace(wanted, narrower=True)
    found: list[Prepared] = []
    rest = dict(family)
    for item in prepared:
        stored = rest.pop(item.document if isinstance(item, Outcome) else item.name, None)
        failed = isinstance(item, Outcome) and item.error is not None
        if stored is not None and failed and isinstance(item, Outcome) and _changes(file, stored, wanted):
            found.append(Relist(stored.name, stored, stored.origin, wanted, item))
        else:
            found.append(item)
    return [*found, *_kept(file, rest, wanted)]


def _kept(file: str, family: Mapping[str, Stored], wanted: Wanted) -> list[Relist]:
    return [
        Relist(name, stored, stored.origin, wanted) for name, stored in family.items() if _changes(file, stored, wanted)
    ]


def _changes(file: str, stored: Stored, wanted: Wanted) -> bool:
    """Whether the document, made of `file` or a part of it, stands under the file's list and has another."""
    is_line = stored.media_type == _LINE_TYPE and (
        file.lower().endswith(_LINES) or not _HELD.match(stored.name.removeprefix(file))
    )
    return not is_line and wanted.over(stored.access) != stored.access
