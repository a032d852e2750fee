"""A stream of questions with known truth: topics by Zipf's law, each asked in many words.

Topics are clusters of questions that Quora's askers called the same (connected components of the `same` pairs), and
intents of a bank in words of our own. Two questions have the same answer where they have the same topic. For Quora that
is what the labels say and not always true: two clusters that nobody compared may mean the same, and a chain of `same`
may drift; what is wrong by it is therefore an upper bound, and `denied` names pairs that a person called different.
"""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import numpy as np

LONGEST_CLUSTER = 40
BANK_SHARE = 0.3

# Ways to ask by what is asked, and the values that make it another question. One tuple is one family of topics.
BANKING: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
    (
        (
            "What is the fee for a transfer to {}?",
            "How much does it cost to transfer money to {}?",
            "Which fee applies to transfers to {}?",
            "Transfer fee to {}?",
            "How much is charged for a transfer to {}?",
        ),
        ("France", "Poland", "India", "Canada", "Japan", "Brazil", "Kenya", "Norway"),
    ),
    (
        (
            "What is the daily limit of the {} card?",
            "How high is the daily limit of the {} card?",
            "How much can be spent in a day with the {} card?",
            "Daily spending limit for the {} card?",
            "What is the maximum amount per day on the {} card?",
        ),
        ("Classic", "Gold", "Platinum", "Student", "Business", "Travel"),
    ),
    (
        (
            "How long does a {} payment take?",
            "How many days does a {} payment take to arrive?",
            "When does a {} payment arrive?",
            "What is the processing time of a {} payment?",
        ),
        ("SEPA", "SWIFT", "card", "direct debit", "cheque"),
    ),
    (
        (
            "What interest does the {} account pay?",
            "Which interest rate applies to the {} account?",
            "How much interest is paid on the {} account?",
            "Interest rate of the {} account?",
        ),
        ("savings", "current", "youth", "fixed-term", "joint"),
    ),
    (
        (
            "What documents are needed to {}?",
            "Which documents do I need in order to {}?",
            "Which papers have to be shown to {}?",
            "Documents required to {}?",
        ),
        ("open an account", "close an account", "apply for a mortgage", "change my name", "add a joint holder"),
    ),
    (
        (
            "How do I {} my card?",
            "What do I have to do to {} my card?",
            "How can I {} my card?",
            "What are the steps to {} my card?",
        ),
        ("block", "unblock", "activate", "replace", "cancel"),
    ),
    (
        (
            "What happens if I repay my loan {}?",
            "What are the consequences of repaying the loan {}?",
            "What does it mean for me if my loan is repaid {}?",
        ),
        ("early", "late", "in part"),
    ),
    (
        (
            "Can I withdraw cash {}?",
            "Is it possible to withdraw cash {}?",
            "Am I able to take out cash {}?",
        ),
        ("abroad", "without a card", "with my phone", "above 1,000 EUR", "above 5,000 EUR"),
    ),
    (
        (
            "Who can see the transactions of a {} account?",
            "Which people have access to the transactions of a {} account?",
            "Who is able to view transactions on a {} account?",
        ),
        ("joint", "company", "child's"),
    ),
    (
        (
            "What should I do if my {} was stolen?",
            "My {} was stolen, what should be done?",
            "What is the procedure for a stolen {}?",
            "What to do about a stolen {}?",
        ),
        ("card", "phone", "cheque book", "passport"),
    ),
)


@dataclass(frozen=True)
class Asking:
    """One question of the stream. `topic` is the truth, `source` qqp or banking."""

    text: str
    topic: int
    source: str


@dataclass(frozen=True)
class Stream:
    askings: list[Asking]
    topics: int
    denied: frozenset[tuple[str, str]]

    def is_denied(self, one: str, other: str) -> bool:
        """Whether a person called the two different."""
        return (min(one, other), max(one, other)) in self.denied


def load(folder: Path, *, length: int, topics: int, seed: int = 7) -> Stream:
    """`length` questions about `topics` topics of Quora and all of the bank's, popular ones most often.

    Within a topic the ways to ask are unequal as well, though less, so that some questions repeat word by word.
    """
    random = np.random.default_rng(seed)
    clusters, denied = _clusters(folder / "qqp_dev.jsonl.gz")
    chosen = [clusters[at] for at in random.permutation(len(clusters))[:topics]]
    bank = [[way.format(value) for way in ways] for ways, values in BANKING for value in values]
    sources = (("qqp", 0, chosen), ("banking", len(chosen), [bank[at] for at in random.permutation(len(bank))]))
    askings = []
    for to_bank in random.random(length) < BANK_SHARE:
        source, first, pool = sources[int(to_bank)]
        at = int(random.choice(len(pool), p=_zipf(len(pool))))
        ways = pool[at]
        askings.append(Asking(ways[int(random.choice(len(ways), p=_zipf(len(ways), 0.5)))], first + at, source))
    return Stream(askings, len(chosen) + len(bank), denied)


def _clusters(path: Path) -> tuple[list[list[str]], frozenset[tuple[str, str]]]:
    above: dict[str, str] = {}

    def root(text: str) -> str:
        above.setdefault(text, text)
        while above[text] != text:
            above[text] = above[above[text]]
            text = above[text]
        return text

    denied = set()
    with gzip.open(path, "rt", encoding="utf-8") as file:
        for row in map(json.loads, file):
            a, b = row["a"].strip(), row["b"].strip()
            if row["same"]:
                above[root(a)] = root(b)
            else:
                denied.add((min(a, b), max(a, b)))
    members: dict[str, list[str]] = defaultdict(list)
    for text in sorted(above):
        members[root(text)].append(text)
    # A chain of hundreds is one that drifted.
    kept = [members[name] for name in sorted(members) if 2 <= len(members[name]) <= LONGEST_CLUSTER]
    return kept, frozenset(denied)


def _zipf(count: int, exponent: float = 1.0) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    weights = np.arange(1, count + 1) ** -exponent
    return np.asarray(weights / weights.sum())
