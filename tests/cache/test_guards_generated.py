"""Templates of our own, filled at random: a guard that knows its kind of difference knows it for any words.

Names, professions, adjectives, things and numbers stand in no list of the development sets; each template is one kind.
"""

from __future__ import annotations

from random import Random

import pytest

from cache.guards import compare, read

NAMES = [
    "Ingrid",
    "Tomasz",
    "Keiko",
    "Baptiste",
    "Aoife",
    "Sven",
    "Lakshmi",
    "Omar",
    "Pilar",
    "Zoltan",
    "Nadia",
    "Hugo",
]
SURNAMES = ["Okafor", "Lindqvist", "Moreau", "Takahashi", "Novak", "Petrov", "Singh", "Alvarez", "Brandt", "Kowalski"]
JOBS = [
    "librarian",
    "surveyor",
    "plumber",
    "notary",
    "courier",
    "dietitian",
    "welder",
    "florist",
    "chemist",
    "translator",
    "optician",
    "beekeeper",
]
QUALITIES = [
    "ambitious",
    "reliable",
    "famous",
    "wealthy",
    "bankrupt",
    "lonely",
    "curious",
    "stubborn",
    "tidy",
    "fluent",
    "bilingual",
]
THINGS = [
    "invoice",
    "parcel",
    "permit",
    "licence",
    "deposit",
    "voucher",
    "refund",
    "badge",
    "laptop",
    "ticket",
    "contract",
    "pension",
]
VERBS = [
    "approve approved",
    "sign signed",
    "inspect inspected",
    "forward forwarded",
    "hide hidden",
    "choose chosen",
    "sell sold",
]
CITIES = ["Lisbon", "Oslo", "Nairobi", "Quito", "Hanoi", "Perth", "Leeds", "Tampa"]

DIFFERENT = {
    "another person": ("Is {n} {s} {aj}?", "Is {m} {s} {aj}?"),
    "another surname": ("Does {n} {s} work in {c}?", "Does {n} {u} work in {c}?"),
    "another city": ("How do I get my {t} in {c}?", "How do I get my {t} in {f}?"),
    "not": ("Should {aj} carry the {t}?", "Should {aj} not carry the {t}?"),
    "never": ("Why does {n} {v} the {t}?", "Why does {n} never {v} the {t}?"),
    "without": ("Can I get {at} with a passport?", "Can I get {at} without a passport?"),
    "before and after": ("Can {n} {v} the {t} before the trip?", "Can {n} {v} the {t} after the trip?"),
    "used to be": ("Is {n} {s} {aj}?", "Did {n} {s} use to be {aj}?"),
    "used to": ("Does {n} own {at}?", "Did {n} use to own {at}?"),
    "becoming": ("Is {n} {s} {d}?", "Is {n} {s} becoming {d}?"),
    "tense": ("Will {n} {v} the {t}?", "Did {n} {v} the {t}?"),
    "number": ("Is {at} valid for {i} days?", "Is {at} valid for {k} days?"),
    "unit": ("Is {at} valid for {i} days?", "Is {at} valid for {i} weeks?"),
    "currency": ("Is there {at} for ${i}?", "Is there {at} for £{i}?"),
    "number on one side": ("Can I return {at}?", "Can I return {at} after {i} days?"),
    "who does it": ("Did {n} {v} {m}?", "Did {m} {v} {n}?"),
    "passive": ("Did {n} {v} {m}?", "Was {n} {p} by {m}?"),
    "passive of a thing": ("Did {n} {v} the {t}?", "Was {n} {p} by the {t}?"),
    "to whom": ("Is {n} {d} to {m}?", "Is {m} {d} to {n}?"),
    "comparison": ("Is {n} taller than {m}?", "Is {m} taller than {n}?"),
    "opposite comparison": ("Is {n} taller than {m}?", "Is {n} shorter than {m}?"),
    "from and to": ("Is there a train from {c} to {f}?", "Is there a train from {f} to {c}?"),
    "and or": ("Is {n} {aj} and {aq}?", "Is {n} {aj} or {aq}?"),
    "he and she": ("If {n} and {m} met, would he {v} the {t}?", "If {n} and {m} met, would she {v} the {t}?"),
    "more and less": ("How can I become more {d}?", "How can I become less {d}?"),
    "all and some": ("Do all {j}s need {at}?", "Do some {j}s need {at}?"),
    "only": ("Can {j}s {v} the {t}?", "Can only {j}s {v} the {t}?"),
    "bound": ("Do I need at least {i} points?", "Do I need at most {i} points?"),
    "modality": ("Can {n} {v} the {t}?", "Must {n} {v} the {t}?"),
    "persons": ("Can I {v} your {t}?", "Can you {v} my {t}?"),
    "owner": ("How do I {v} my {t}?", "How do I {v} your {t}?"),
    "question word": ("Where did {n} {v} the {t}?", "When did {n} {v} the {t}?"),
    "qualifier": ("Do {j}s need {at}?", "Do part-time {j}s need {at}?"),
    "for whom": ("How do I {v} {at}?", "How do I {v} {at} for my mother?"),
}
SAME = {
    "passive": ("Did {n} {v} {m}?", "Was {m} {p} by {n}?"),
    "passive of a thing": ("Did {n} {v} the {t}?", "Was the {t} {p} by {n}?"),
    "comparison turned round": ("Is {n} older than {m}?", "Is {m} younger than {n}?"),
    "order of alternatives": ("Is {n} {aj} or {aq}?", "Is {n} {aq} or {aj}?"),
    "emphasis": ("Is {n} {aj}?", "Is {n} really {aj}?"),
    "a phrase in front": ("Can {n} {v} the {t} in {c}?", "In {c}, can {n} {v} the {t}?"),
    "notation": ("Is the fee {i}00 EUR?", "Is the fee €{i}00.00?"),
    "politeness": ("How do I {v} the {t}?", "Hi, could you tell me how I can {v} the {t} please?"),
    "distance": ("How far is it from {c} to {f}?", "How far is it from {f} to {c}?"),
    "capitals": ("how do i {v} the {t}?", "How do I {v} the {t}?"),
}


def filled(templates: tuple[str, str], seed: int) -> tuple[str, str]:
    choose = Random(seed)
    (n, m), (s, u), (c, f) = choose.sample(NAMES, 2), choose.sample(SURNAMES, 2), choose.sample(CITIES, 2)
    (j, q), (t, _), d = choose.sample(JOBS, 2), choose.sample(THINGS, 2), choose.choice(QUALITIES)
    v, p = choose.choice(VERBS).split()
    i, k = choose.sample(range(2, 90), 2)
    words = {"n": n, "m": m, "s": s, "u": u, "c": c, "f": f, "j": j, "t": t, "d": d, "v": v, "p": p, "i": i, "k": k}
    words |= {"aj": _article(j), "aq": _article(q), "at": _article(t)}
    return templates[0].format(**words), templates[1].format(**words)


def _article(noun: str) -> str:
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


@pytest.mark.parametrize("kind", DIFFERENT)
def test_each_kind_of_difference_is_refused_for_any_words(kind: str) -> None:
    pairs = [filled(DIFFERENT[kind], seed) for seed in range(25)]
    passed = [pair for pair in pairs if compare(read(pair[0]), read(pair[1])).passed]
    assert not passed


@pytest.mark.parametrize("kind", SAME)
def test_each_kind_of_rewording_passes_for_any_words(kind: str) -> None:
    pairs = [filled(SAME[kind], seed) for seed in range(25)]
    refused = [(pair, verdict) for pair in pairs if not (verdict := compare(read(pair[0]), read(pair[1]))).passed]
    assert not refused
