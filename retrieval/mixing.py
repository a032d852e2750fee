"""Which passages may stand in one prompt: with the policy "separate", only those that the same people may read.

A document's author can tell the model to put what else it reads into the answer. That is harmless only where whoever
may have written the one passage may read the other anyway, in both directions: where their readers are the same. Two
documents are of one reader class if their access lists hold the same labels, allowing and denying. Labels and not
people: who is in a group may be known to an identity provider alone, and changes without the document. See
docs/decisions/0010-one-reader-class-a-prompt.md.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from sqlalchemy import select

from retrieval.passage import Passage
from tenancy.prepared import Prepared
from tenancy.schema import acl
from tenancy.tenant import ReadView
from tenancy.types import among

ReaderClass = frozenset[tuple[int, str]]
"""Label ids of an access list, each with "allow" or "deny"."""

_LABELS: Final = Prepared(
    select(acl.c.document_id, acl.c.label_id, acl.c.effect).where(among(acl.c.document_id, "documents"))
)


def reader_classes(view: ReadView, document_ids: Collection[int]) -> dict[int, ReaderClass]:
    """The reader class of each of `document_ids` in the state that `view` sees; of one that is gone, nobody's."""
    held: dict[int, set[tuple[int, str]]] = {document_id: set() for document_id in document_ids}
    for document_id, label, effect in view.rows(_LABELS, {"documents": document_ids}):
        held[int(document_id)].add((int(label), str(effect)))
    return {document_id: frozenset(labels) for document_id, labels in held.items()}


def by_class(passages: Sequence[Passage], classes: Mapping[int, ReaderClass]) -> list[list[Passage]]:
    """`passages`, best first, by their reader class; the class of the best passage first, likewise within each."""
    groups: dict[ReaderClass, list[Passage]] = {}
    for passage in passages:
        groups.setdefault(classes[passage.document_id], []).append(passage)
    return list(groups.values())
