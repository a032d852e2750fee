"""Negatives: pairs of questions that were found to have different answers stay apart, and wrong entries unserved."""

from __future__ import annotations

from typing import Final

from cache.certificate import negatives
from cache.decision import Asked, Reason
from cache.entry import Entry
from cache.verdict import Verdict, passed, veto
from tenancy.tenant import ReadView

NAME: Final = "negatives"


def check(view: ReadView, asked: Asked, entry: Entry) -> Verdict:
    if negatives.known(view, asked.question, entry.question):
        return veto(NAME, Reason.KNOWN_NEGATIVE)
    return check_entry(view, entry)


def check_entry(view: ReadView, entry: Entry) -> Verdict:
    """Whatever the question: an entry that was found wrong and is still in the store."""
    if negatives.refused(view, entry.id):
        return veto(NAME, Reason.KNOWN_NEGATIVE)
    return passed(NAME)
