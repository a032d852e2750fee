"""The prompt of an answer, with the personal data that the model is not to see behind placeholders."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from generation.generator import Quote
from generation.guardrails.masks import Masked, Masks
from generation.guardrails.rails import original_quote
from generation.prompt import Prompt, PromptSource, render
from retrieval.context import Context
from retrieval.plan import Plan


@dataclass(frozen=True, slots=True)
class Masking:
    """`masks` puts back what the placeholders of `prompt` stand for; `sources` are the masked texts by key."""

    prompt: Prompt
    masks: Masks
    sources: dict[str, Masked]

    def originals(self, quotes: Iterable[Quote], context: Context) -> tuple[Quote, ...]:
        """Quotes of the masked sources as quotes of the sources themselves, verbatim and at their places."""
        texts = {source.key: source.passage.text for source in context.sources}
        return tuple(
            original_quote(quote, self.sources[quote.key], texts[quote.key]) if quote.key in texts else quote
            for quote in quotes
        )


def masked_prompt(plan: Plan, context: Context, *, mark: str) -> Masking:
    """`mark` is the canary. One item has one placeholder in sources, history and question. Raises `RailFailed`."""
    rails, sources = plan.rails, context.prompt_sources
    texts = [part for source in sources for part in (*_described(source), source.text)]
    masks = rails.masks([*texts, *(turn.text for turn in plan.room.history), plan.query])

    def masked(text: str) -> str:
        return rails.masked(masks, text).text

    shown: list[PromptSource] = []
    by_key: dict[str, Masked] = {}
    for source in sources:
        by_key[source.key] = rails.masked(masks, source.text)
        title, document = masked(source.title), masked(source.document)
        above, place = (None if part is None else masked(part) for part in (source.context, source.place))
        text = by_key[source.key].text
        shown.append(replace(source, title=title, document=document, context=above, place=place, text=text))
    history = tuple(replace(turn, text=masked(turn.text)) for turn in plan.room.history)
    prompt = render(plan.template, masked(plan.query), shown, history, mark=mark)
    return Masking(prompt, masks, by_key)


def _described(source: PromptSource) -> tuple[str, ...]:
    """What the prompt says of a source beside its text."""
    return source.title, source.document, source.context or "", source.place or ""
