"""One tenant's cache as the question path uses it: ask, look up, answer, remember."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from cache.entry import Vector, canonical_payload
from cache.key import CompositeIdentity, RetrievalIdentity
from cache.ladder import Ladder
from cache.lookup import Asked, Hit, Miss, Mode, ask, exact, semantic
from cache.openings import open_template
from cache.store import Completed, NotStored, Stored, put
from cache.stores.local import LocalStore
from tenancy.domain import PermissionDomain, permission_domain
from tenancy.identity import Principal
from tests.support.people import Company

DIMENSION = 8


class Clock:
    def __init__(self, now: float = 1_764_430_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def identity(domain: PermissionDomain, **changes: Any) -> CompositeIdentity:
    whole = CompositeIdentity(
        tenant_id=domain.tenant_id,
        domain=domain.fingerprint,
        model_revision="extractive-1",
        tokenizer_revision="words-1",
        template_revision="default@1",
        adapter_revision=None,
        embedder="hashing/8",
        generation="temperature=0;max_tokens=256",
        user_id=None,
        filter=None,
        conversation=None,
        response_contract=None,
        retrieval=RetrievalIdentity(8, "hybrid", "rrf", None, "chunker-1"),
    )
    return replace(whole, **changes)


def unit(*values: float) -> Vector:
    vector = np.zeros(DIMENSION, dtype=np.float32)
    vector[: len(values)] = values
    return vector / np.linalg.norm(vector)


class Desk:
    """A principal of a company, and the cache."""

    def __init__(self, company: Company, principal: Principal, store: LocalStore, ladder: Ladder | None = None) -> None:
        self.company = company
        self.principal = principal
        self.store = store
        self.ladder = ladder or Ladder()

    def ask(self, question: str, *, mode: Mode = Mode.DEFAULT, template: str = "default", **changes: Any) -> Asked:
        with self.company.handle.reading() as view:
            domain = permission_domain(self.principal, view)
            follow_up = changes.get("conversation") is not None
            whole = identity(domain, **changes)
            policy = self.store.policy.of(template)
            return ask(domain, view, whole, question, template=template, mode=mode, follow_up=follow_up, policy=policy)

    def exact(self, question: str | Asked, *, dry: bool = False, **changes: Any) -> Hit | Miss:
        asked = question if isinstance(question, Asked) else self.ask(question, **changes)
        with self.company.handle.reading() as view:
            return exact(permission_domain(self.principal, view), view, self.store, asked, dry=dry)

    def semantic(
        self, question: str | Asked, vector: Vector, *, tokens: int = 8, dry: bool = False, **changes: Any
    ) -> Hit | Miss:
        asked = question if isinstance(question, Asked) else self.ask(question, **changes)
        with self.company.handle.reading() as view:
            domain = permission_domain(self.principal, view)
            return semantic(
                domain, view, self.store, asked, vector, tokens=tokens, limit=256, ladder=self.ladder, dry=dry
            )

    def answer(self, *documents: int, text: str = "Twelve weeks.", **changes: Any) -> Completed:
        """An answer made from `documents` in the present state."""
        with self.company.handle.reading() as view:
            epochs = view.epochs
        whole = Completed(
            payload=canonical_payload({"answer": text, "citations": list(documents), "finish_reason": "stop"}),
            finish_reason="stop",
            abstained=False,
            verified_citations=1,
            dependencies=tuple((document, "sha256:1") for document in documents),
            epochs=epochs,
            vector=unit(1.0),
            audit_seq=7,
        )
        return replace(whole, **changes)

    def put(self, question: str | Asked, answer: Completed, **changes: Any) -> Stored | NotStored:
        asked = question if isinstance(question, Asked) else self.ask(question, **changes)
        return put(self.company.handle, self.principal, self.store, asked, answer)

    def open(self, threshold: float = 0.8, template: str = "default") -> None:
        with self.company.handle.writing() as view:
            open_template(view, template, threshold=threshold, opened_by="ana", reason="trial", now=self.store.clock())
