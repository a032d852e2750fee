"""The guard rails of one contract, ready to be asked.

    rails = rails_of(contract.generation.guards)
    rails.refuse_question([question])               # BlockedTopic
    masks = rails.masks(every_text_of_the_prompt)   # then masks.masked(text) for the model
    leaving = rails.leaving(masks, checks)          # the answer on its way out
    rails.shown("a title")                          # a short text beside the answer

A rail that breaks raises `RailFailed`, and nothing passes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from generation.generator import Quote
from generation.guardrails.failure import BlockedAnswer, BlockedTopic, UncitedAnswer, failing_closed
from generation.guardrails.masks import Masked, Masks, removed
from generation.guardrails.personal import find
from generation.guardrails.stages import BlockedTopics, PersonalData, Rail, Restoring, UntilVerified
from generation.guardrails.topics import Topics
from generation.links import NoImages, without_images
from generation.output import Chain, Stage
from tenancy.contract import GuardTerms, PersonalKind

RULES: Final = "rails-1"
"""Moves with what any rail finds or does."""


@dataclass(frozen=True, slots=True)
class Rails:
    """`revision` is the digest of all that decides what leaves."""

    terms: GuardTerms
    topics: Topics
    revision: str

    def refuse_question(self, texts: Iterable[str]) -> None:
        """Raises `BlockedTopic` where one of `texts` holds a blocked phrase; it names the topic and no phrase."""
        with failing_closed("question"):
            topic = next((found for text in texts if (found := self.topics.of(text)) is not None), None)
        if topic is not None:
            raise BlockedTopic("questions about this topic are not answered here", item=topic, remedy="ask otherwise")

    def masks(self, texts: Iterable[str]) -> Masks:
        """The placeholders of one prompt that holds `texts`."""
        with failing_closed("mask_input"):
            return Masks(frozenset(self.terms.mask_input), texts)

    def masked(self, masks: Masks, text: str) -> Masked:
        with failing_closed("mask_input"):
            return masks.masked(text)

    def shown(self, text: str) -> str:
        """`text` without the personal data that the asker is not to see."""
        if not self.terms.mask_output:
            return text
        with failing_closed("mask_output"):
            return _without(text, self.terms.mask_output)

    def names_blocked(self, text: str) -> bool:
        with failing_closed("answer"):
            return bool(self.topics) and self.topics.of(text) is not None

    def leaving(self, masks: Masks, first: Sequence[Stage], then: Sequence[Stage]) -> Leaving:
        return Leaving(self, masks, first, then)

    def check_whole(self, text: str, cited: bool) -> str:
        """What of a remembered answer may leave. Raises `BlockedAnswer`, and `UncitedAnswer` for one that cites nothing
        where an answer has to.
        """
        with failing_closed("answer"):
            topic = self.topics.of(text)
        if topic is not None:
            raise _blocked(topic)
        if self.terms.require_citation and not cited:
            raise UncitedAnswer("the answer cites nothing", item="citation", remedy="ask again")
        return without_images(self.shown(text))


class Leaving:
    """An answer on its way out: `first`, then placeholders put back, `then`, blocked topics, personal data; last, that
    nothing of it has become an image.
    """

    def __init__(self, rails: Rails, masks: Masks, first: Sequence[Stage], then: Sequence[Stage]) -> None:
        terms = rails.terms
        self._restoring = Restoring(masks, terms.mask_output) if masks.kinds else None
        self._topics = BlockedTopics(rails.topics) if rails.topics else None
        restoring = [Rail("mask_input", self._restoring)] if self._restoring else []
        topics = [Rail("answer", self._topics)] if self._topics else []
        self._chain = Chain([*first, *restoring, *then, *topics])
        masking = [Rail("mask_output", PersonalData(terms.mask_output))] if terms.mask_output else []
        self._masking = Chain([*masking, NoImages()])
        self._until_verified = Chain([Rail("citation", UntilVerified())] if terms.require_citation else [])
        self._unmasked: list[str] = []
        self._ended = False

    @property
    def detail(self) -> Mapping[str, int | bool | str]:
        return {**self._chain.detail, **self._masking.detail, **self._until_verified.detail}

    @property
    def warnings(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self._chain.warnings, *self._masking.warnings)))

    @property
    def said(self) -> str:
        """The answer so far with all that was masked in it: its citations are verified by it, and it does not leave."""
        return self._restoring.said if self._restoring else "".join(self._unmasked)

    def feed(self, text: str) -> str:
        """What may leave now. Raises `Withheld` and `RailFailed`; ask `refuse` behind it."""
        return self._passed(self._chain.feed(text), complete=False)

    def flush(self) -> str:
        """The rest, once the answer is complete; where citations are required, all of it, to be verified first."""
        return self._passed(self._chain.flush(), complete=True)

    @property
    def blocked(self) -> str | None:
        """The topic of the blocked phrase that stands behind what has left."""
        return None if self._topics is None else self._topics.blocked

    def refuse(self) -> None:
        """Raises `BlockedAnswer` where there is one."""
        if self.blocked is not None:
            raise _blocked(self.blocked)

    def _passed(self, text: str, *, complete: bool) -> str:
        if self._ended:
            return ""
        self._ended = complete or self.blocked is not None
        self._unmasked.append(text)
        text = self._masking.feed(text) + (self._masking.flush() if self._ended else "")
        text = self._until_verified.feed(text)
        # What stands before a blocked phrase was not verified, and will not be.
        return text + (self._until_verified.flush() if complete and self.blocked is None else "")


def rails_of(terms: GuardTerms) -> Rails:
    """Raises `RailFailed`."""
    with failing_closed("contract"):
        digest = hashlib.sha256(RULES.encode() + msgspec.json.encode(terms, order="deterministic"))
        return Rails(terms, Topics(terms.blocked), f"{RULES}-{digest.hexdigest()[:16]}")


def original_quote(quote: Quote, masked: Masked, original: str) -> Quote:
    """A quote of a masked source as a quote of the source itself."""
    start = quote.start
    if masked.text[max(0, start) : quote.end] != quote.text or start < 0:
        start = masked.text.find(quote.text)
    if start < 0 or not quote.text:
        return quote
    begin = masked.original(start)
    end = masked.original(start + len(quote.text), end=True)
    return Quote(quote.key, begin, end, original[begin:end])


def _without(text: str, kinds: Collection[PersonalKind]) -> str:
    parts: list[str] = []
    at = 0
    for item in find(text, kinds):
        parts += (text[at : item.start], removed(item.kind))
        at = item.end
    return "".join((*parts, text[at:]))


def _blocked(topic: str) -> BlockedAnswer:
    return BlockedAnswer(
        "the answer went into a topic that is not answered here", item=topic, remedy="ask in other words"
    )
