"""Cacheability: how far an answer to this question may travel, decided from the question and the template's policy."""

from __future__ import annotations

from typing import Final

import regex

from cache.decision import Reach
from cache.guards import Text
from cache.policy import TemplatePolicy
from cache.rungs import personal
from cache.verdict import Verdict, passed, veto

NAME: Final = "cacheability"
_DEFAULT: Final = TemplatePolicy()

# Patterns are matched against lower case, which is several times faster than ignoring case. What may repeat is
# kept apart by what may not stand in it: anything else can take a hostile question hours.
_ACTION = regex.compile(
    r"^\W*(?:(?:hi|hello|hey|please|ok|okay|yes|now|then|and|so)\W+)*(?:(?:can|could|would|will) you (?:please )?)?"
    r"(?:please )?(?:do not |don't )?"
    r"(?:book|reserve|order|buy|send|e-?mail|call|remind|transfer|pay|cancel|delete|remove|create|schedule|submit|"
    r"upload|translate|write|draft|generate|compose|convert|track|set|move|turn|play|sign me|add|refund)\b(?!-)"
    r"(?! (?:of|in|is|are|does|policy|policies)\b)",
)
_MOMENT = regex.compile(
    r"\b(?:now|right now|today|tonight|tomorrow|yesterday|at the moment|so far|"
    r"this (?:morning|afternoon|evening|week|month|year|quarter|weekend)|next (?:week|month|year|quarter)|"
    r"last (?:night|week|month|year|quarter)|(?:days?|weeks?|months?|years?) ago|what time is it)\b"
    r"|现在|現在|今天|今晚|明天|昨天|目前|此刻|这周|本周|本月|今年|去年|明年|几点了",
)
_DEICTIC = regex.compile(
    r"^\W*(?:and|but|so|then|also|what about|how about|why not|why|really|ok|okay|yes|no|the (?:first|second|other|"
    r"last|latter|former) one|那|还有|然后|为什么)\W*(?:\w+\W+){0,3}(?:\w+\W*)?$"
    r"|\b(?:that one|this one|those ones|the former|the latter|the above|as above|mentioned|same thing)\b"
    r"|^\W*(?:\w+\W+){0,3}(?:it|that|this|them|those|these)\W*(?:please\W*)?$"
    r"|上面|刚才|前者|后者|那个呢|这个呢",
)


def judge(
    text: Text, *, follow_up: bool, sampled: bool = False, policy: TemplatePolicy = _DEFAULT
) -> tuple[Reach, str]:
    """How far, and the rule that said so ("" for SHARED).

    `follow_up`: the question has a conversation before it, which the namespace then carries as a digest. `sampled`:
    the answer is drawn by chance, so that another one is as good.
    """
    source = text.source.lower()
    if sampled:
        return Reach.NONE, "sampled"
    if _ACTION.search(source):
        return Reach.NONE, "asks for an action"
    moment = _MOMENT.search(source) is not None
    if moment and policy.moment == "none":
        return Reach.NONE, "depends on the moment"
    if personal.kind(text.source) is not None:
        return (Reach.NONE if policy.personal == "none" else Reach.PRIVATE), "personal data"
    if moment:
        return Reach.EXACT, "depends on the moment"
    if follow_up:
        return Reach.EXACT, "follow-up"
    if _DEICTIC.search(source):
        return (Reach.NONE if policy.deictic == "none" else Reach.EXACT), "points at something outside"
    if not any(character.isalpha() for character in source):
        return Reach.EXACT, "no words"
    return (Reach.SHARED, "") if policy.semantic else (Reach.EXACT, "template is exact only")


def check(reach: Reach, why: str) -> Verdict:
    """Whether an answer may be remembered at all."""
    return veto(NAME, why) if reach is Reach.NONE else passed(NAME)


def check_semantic(reach: Reach, why: str) -> Verdict:
    """Whether it may serve another question."""
    return passed(NAME) if reach is Reach.SHARED else veto(NAME, why)
