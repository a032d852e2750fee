"""Passages for the tests of what happens after search."""

from __future__ import annotations

from retrieval.passage import Passage


def passage(
    text: str, *, document: str = "leave.md", document_id: int = 1, start: int = 0, ordinal: int = 0, title: str = ""
) -> Passage:
    """One chunk of `document`; its text stands there from `start` on."""
    return Passage(
        document=document,
        document_id=document_id,
        title=title or document,
        version="sha256:1",
        chunk=f"c{ordinal}",
        chunk_id=document_id * 1000 + ordinal,
        start=start,
        end=start + len(text),
        text=text,
        score=1.0,
    )
