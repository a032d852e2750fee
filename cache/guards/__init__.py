"""Text guards: may a cached answer to one question be given to another question?

Each guard returns a typed verdict; the first veto decides. They see texts only, know nothing of vectors, and are
versioned together: evidence about the cache's correctness belongs to one revision of the rules, which names the state
of the code and of every list in `data/`.
"""

from __future__ import annotations

from cache.guards import (
    contrast,
    families,
    forms,
    labels,
    marks,
    polarity,
    qualifiers,
    relations,
    roles,
    slots,
    spelling,
)
from cache.guards.rules import REVISION as RULES_REVISION
from cache.guards.words import Language, Text, common_language, read
from cache.verdict import Verdict, passed, veto

__all__ = ["RULES_REVISION", "Language", "Text", "Verdict", "compare", "read"]


def compare(question: Text, cached: Text) -> Verdict:
    """Pass, or the first veto, for two questions read with `read`; equal texts pass."""
    if question.source == cached.source:
        return passed("same text")
    language = common_language(question, cached)
    if language is Language.UNKNOWN:
        return veto("language", "no rules for this language")
    # A comparison that is turned round has its roles exchanged and its polarity flipped: polarity decides about both.
    turned = roles.turned(question, cached, language)
    verdict = polarity.check(question, cached, language, turned=turned)
    for check in _TURNED if turned else _CHECKS:
        if not verdict.passed:
            return verdict
        verdict = check(question, cached, language)
    return passed("guards", near=verdict.near) if verdict.passed else verdict


_TURNED = (
    marks.check,
    slots.check,
    labels.check,
    families.check,
    relations.check,
    spelling.check,
    qualifiers.check,
    contrast.check,
)
# `contrast` stands last: what it saw but did not refuse is for the score.
_CHECKS = (
    slots.check,
    labels.check,
    families.check,
    relations.check,
    roles.check,
    marks.check,
    forms.check,
    spelling.check,
    qualifiers.check,
    contrast.check,
)
