"""From names that people use to the ids that cache entries hold, for commands and routes alike."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass

from sqlalchemy import select

from audit.record import Resource
from audit.trail import Trail
from cache.stores.port import CacheStore
from cache.stores.selector import Selector
from tenancy import directory, schema
from tenancy.errors import NotFound
from tenancy.tenant import ReadView, TenantHandle


@dataclass(frozen=True, slots=True)
class Selection:
    """Which entries to remove, by names. `older_than` is in seconds."""

    document: str | None = None
    entry: str | None = None
    user: str | None = None
    template: str | None = None
    older_than: float | None = None
    everything: bool = False

    def resolve(self, view: ReadView) -> Selector:
        """Raises `NotFound` for an unknown document or user, `InvalidInput` where nothing is selected."""
        return Selector(
            document=None if self.document is None else document_id(view, self.document),
            entry=self.entry,
            user=None if self.user is None else _user_id(view, self.user),
            template=self.template,
            older_than=self.older_than,
            everything=self.everything,
        )


def invalidate(store: CacheStore, tenant: TenantHandle, selection: Selection, trail: Trail) -> int:
    """Remove the selected entries and note on the trail what was selected and how many there were."""
    with tenant.reading() as view:
        selector = selection.resolve(view)
    if selection.document is not None:
        trail.note(resources=[Resource(document=selection.document, stage="access")])
    removed = store.invalidate(tenant, selector)
    trail.note(
        detail={
            "entry": selector.entry,
            "template": selector.template,
            "older_than": None if selector.older_than is None else f"{selector.older_than:g} s",
            "user": trail.log.subjects.ref(selector.user) if selector.user else None,
            "everything": selector.everything,
            "removed": removed,
        }
    )
    return removed


def document_id(view: ReadView, name: str) -> int:
    """The internal id of a document. Raises `NotFound`."""
    named = schema.documents.c.name == unicodedata.normalize("NFC", name)
    found = view.execute(select(schema.documents.c.id).where(named)).scalar_one_or_none()
    if found is None:
        raise NotFound(
            "no such document",
            item=name[:200],
            remedy="`strongroom document list` and GET /v1/documents list the names, as ingestion printed them",
        )
    return int(found)


def label_summary(labels: frozenset[str]) -> str:
    """An access list's side for the audit: groups by name, users only by their number."""
    users = sum(label.startswith("user:") for label in labels)
    named = sorted(label for label in labels if not label.startswith("user:"))
    return " ".join([*named, f"users:{users}"] if users else named)


def _user_id(view: ReadView, name: str) -> str:
    found = directory.find_user(view, name)
    if found is None:
        raise NotFound("no such user in this tenant", item="user")
    return found
