"""A passage that search returned: one chunk of one document version, readable by the caller."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Passage:
    """`text` is the document's text from `start` to `end` (characters); `score` orders passages of one search."""

    document: str
    document_id: int
    title: str
    version: str
    chunk: str
    chunk_id: int
    start: int
    end: int
    text: str
    score: float
