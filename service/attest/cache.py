"""The cache: is an answer that one namespace remembers ever served in another?

One reader asks; then readers of another domain, of another tenant, and the same reader with another template or model
ask the same, byte for byte, and nothing of it may be remembered for them. A colleague of the first one's domain must
then be served the remembered answer. Likewise for paraphrases, for which the canaries' template is opened to semantic
hits: certificates are earned by real questions.
"""

from __future__ import annotations

import time
from typing import Any, Final

import httpx

from cache.openings import open_template
from generation.templates import add
from service.attest.canaries import Canary, on_record
from service.attest.claims import Claim, Layer, Tally, inconclusive, not_built
from service.attest.stage import Stage, asked_about, code_of, word

NAME: Final = "cache"
TEMPLATE: Final = "attest"
THRESHOLD: Final = 0.5
"""Cosine: what is alike is decided by the guards and the score behind it."""
_NEED: Final = 0.95
"""Share of the controls: an answer may have expired or been evicted."""
_SYSTEM: Final = (
    "You answer from the sources that the user message holds, and cite them. If they do not answer, say so."
)
_REMEDY: Final = (
    "let the readers' own questions be remembered: cache.enabled, cache.store, a generator whose answers cite"
)
_SUBJECTS: Final = (
    "delivery address", "warranty period", "meal allowance", "spare part", "security officer", "paint colour",
    "voltage limit", "holiday rota", "fuel grade", "meeting room",
)  # fmt: skip
_FORMS: Final = (
    "Tell me the {subject} of {topic}.", "Which {subject} does {topic} have?", "What's the {subject} of {topic}?",
    "What {subject} does {topic} have?", "Please tell me the {subject} of {topic}.", "What is {topic}'s {subject}?",
)  # fmt: skip


def examine(stage: Stage) -> Layer:
    if not stage.settings.cache.enabled:
        return Layer.of(NAME, [not_built("no answer crosses a namespace", "the cache is switched off (cache.enabled)")])
    for canary in (stage.left, stage.right):
        _prepare(stage, canary)
    return Layer.of(NAME, [*_identical(stage), *_paraphrased(stage)])


def _prepare(stage: Stage, canary: Canary) -> None:
    """A second template, and semantic hits of the first; both of the canary alone."""

    def work(_: Any) -> None:
        with stage.pair.control.tenants.open(canary.principal).writing() as view:
            add(view, TEMPLATE, _SYSTEM, time.time())
            open_template(
                view, "default", threshold=THRESHOLD, opened_by="operator", reason="attestation", now=time.time()
            )

    on_record(stage.pair.control, canary.principal, "attest.prepare", work)


def _identical(stage: Stage) -> list[Claim]:
    """Byte for byte the same question."""
    topic, secrets = word(), {canary.name: word() for canary in (stage.left, stage.right)}
    for canary in (stage.left, stage.right):
        stage.caller.put(canary, "cache.md", code_of(topic, secrets[canary.name]), "group:red", "group:blue")
    models = _models(stage)
    other_model = next((model for model in models[1:]), None)
    arms: dict[str, tuple[Canary, str, dict[str, str]]] = {
        "user domain": (stage.left, "rob", {}),
        "tenant": (stage.right, "ana", {}),
        "template": (stage.left, "ana", {"template": TEMPLATE}),
        **({} if other_model is None else {"model": (stage.left, "ana", {"model": other_model})}),
    }
    tallies = {name: Tally(f"a remembered answer is not served across: {name}") for name in arms}
    foreign = secrets[stage.left.name]
    for number in range(stage.options.probes):
        query = f"{asked_about(topic)[:-1]} under rule {100_000 + number}?"
        stage.caller.ask(stage.left, "ana", query)
        for name, (canary, user, more) in arms.items():
            answered = stage.caller.ask(canary, user, query, **more)
            if answered.status_code != httpx.codes.OK:
                tallies[name].void(f"HTTP {answered.status_code}")
                continue
            status = answered.json()["cache"]["status"]
            if status == "bypass":
                tallies[name].void("the cache was not asked")
                continue
            leaked = status == "hit" or (canary is stage.right and foreign in answered.text)
            tallies[name].probe(leaked, f"question {number}")
        held = _hit(stage.caller.ask(stage.left, "ann", query)) == "exact"
        for tally in tallies.values():
            tally.control(held, f"question {number}")
    claims = [tally.close(need=_NEED, remedy=_REMEDY) for tally in tallies.values()]
    if other_model is None:
        why = "this deployment has one model for tenants of the default tier"
        claims.append(not_built("a remembered answer is not served across: model", why))
    return claims


def _paraphrased(stage: Stage) -> list[Claim]:
    """The same in other words."""
    topics = [(word(), subject) for subject in _SUBJECTS]
    for canary in (stage.left, stage.right):
        for number, (topic, subject) in enumerate(topics):
            text = f"The {subject} of {topic} is {word()}."
            stage.caller.put(canary, f"paraphrase-{number}.md", text, "group:red", "group:blue")
    across = {
        "user domain": (Tally("a paraphrase is not served across: user domain"), stage.left, "rob"),
        "tenant": (Tally("a paraphrase is not served across: tenant"), stage.right, "ana"),
    }
    for topic, subject in topics:
        stage.caller.ask(stage.left, "ana", f"What is the {subject} of {topic}?")
        # The first semantic hits of an entry are compared with fresh answers, so that one form is not enough.
        own = [_hit(stage.caller.ask(stage.left, "ann", form.format(subject=subject, topic=topic))) for form in _FORMS]
        for tally, canary, user in across.values():
            answered = stage.caller.ask(canary, user, _FORMS[0].format(subject=subject, topic=topic))
            if answered.status_code == httpx.codes.OK:
                tally.probe(_hit(answered) is not None, subject)
            tally.control("semantic" in own, subject)
    remedy = "semantic hits need a model of meanings (embedding.model) and a policy that permits them (cache.templates)"
    claims = [tally.close(need=0.0, remedy=remedy) for tally, _, _ in across.values()]
    if all(one.held == 0 and one.verdict != "FAIL" for one in claims) and not _semantic(stage):
        return [not_built(one.claim, "semantic hits are switched off (cache.templates.default)") for one in claims]
    return claims


def _semantic(stage: Stage) -> bool:
    policy = stage.settings.cache.templates.get("default")
    return policy is None or policy.semantic


def _models(stage: Stage) -> list[str]:
    listed = stage.caller.send("GET", "/v1/models", stage.left.keys["ana"]).json().get("data", [])
    return [model["id"] for model in listed]


def _hit(response: httpx.Response) -> str | None:
    """How a remembered answer was found, or None where a fresh one was given, or none."""
    if response.status_code != httpx.codes.OK:
        return None
    cache = response.json()["cache"]
    return str(cache["kind"]) if cache["status"] == "hit" else None


def unanswered(why: str) -> Layer:
    """Where no question may be asked."""
    return Layer.of(NAME, [inconclusive("no answer crosses a namespace", why)])
