"""How often the judge of stored answers errs, on pairs of answers of which it is known whether they state the same.

    python -m benchmarks.judge_error --data ../shared/data [--limit N]

There is no public set of cached answers with labels, so pairs are made from the passages of XQuAD (English and Chinese,
CC BY-SA 4.0), whose sentences are real facts with names, numbers and dates:

* same, by what a model does to a fact: the same sentence under other marks of sources; with its neighbour; numbers
  written otherwise (1,200 and 1200); "is not" contracted; words of courtesy around it; half of its citations; the year
  from the front moved to the end;
* different, by what a wrong hit does: another sentence of the passage (also beside a shared citation); a number or a
  year moved; a name exchanged with another one of the passage (now and then with more or less of the same name, which
  is counted as missed all the same); two of its own names exchanged; the statement denied; another passage.

The hardest pairs are those of PAWS-Wiki (free use with credit), sentences of the same words which people called the
same or not, as answers with one citation: every second pair of its development set, the others having been looked at.

`missed`: different pairs that are called the same, which flatters the certificate. `alarmed`: same pairs that are
called wrong, which only delays it. Made pairs are easier than life, and nobody paraphrased them: read the figures as a
floor. Counts stand beside shares; the last line is one JSON object.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import json
import random
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cache.certificate.judge import JUDGE_REVISION, Cited, Statement, judge
from generation.sentences import sentences

Pair = tuple[str, bool, Statement, Statement]

_NUMBER = re.compile(r"(?<![\w.,])\d{1,3}(?:,\d{3})+(?![\w,])|(?<![\w.,])\d{1,3}(?![\w.,-])")
_YEAR = re.compile(r"\b(1[0-9]\d\d|20[0-2]\d)\b")
_NAME = re.compile(r"(?<=[a-z,] )[A-Z][a-z]{3,}(?: [A-Z][a-z]{3,})*")
_BE = re.compile(r"\b(is|was|were|are|can|could|will|would|has|had)\b(?! not| n't)")
_IN_YEAR = re.compile(r"^(In (?:[A-Z][a-z]+ )?\d{4}), (\w)(.*?)(\.?)$")
_NOT = re.compile(r"\b(is|was|were|are|has|had|could|would) not\b")


@dataclass(frozen=True)
class Fact:
    """One sentence of a passage, with its place."""

    passage: str
    text: str
    start: int

    def said(self, text: str | None = None, *also: Fact) -> Statement:
        """An answer that states `text` and cites this sentence, and those beside it."""
        cited = [Cited(one.passage, "v1", one.start, one.start + len(one.text), one.text) for one in (self, *also)]
        return Statement(text or f"{self.text} [S1]", tuple(cited))


def passages(folder: Path) -> dict[str, list[Fact]]:
    """The sentences of each passage that state something."""
    found = {}
    for line in (folder / "corpus.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        facts = [Fact(row["_id"], one.text, one.start) for one in sentences(row["text"]) if len(one.text) > 24]
        if len(facts) > 2:
            found[row["_id"]] = facts
    return found


def made(facts: dict[str, list[Fact]], language: str, rng: random.Random) -> Iterator[Pair]:
    names = list(facts)
    for name, own in facts.items():
        for position, fact in enumerate(own):
            beside = own[position - 1] if position else own[1]
            yield from _same(fact, beside, language)
            yield from _different(fact, beside, own, rng)
            other = rng.choice(facts[rng.choice([one for one in names if one != name])])
            yield "another passage", False, fact.said(), other.said()


def _same(fact: Fact, beside: Fact, language: str) -> Iterator[Pair]:
    fresh = fact.said()
    yield "the same sentence", True, fresh, fact.said(f"[S3] {fact.text}")
    yield "with its neighbour", True, fresh, fact.said(f"{beside.text} [S2] {fact.text} [S1]", beside)
    yield "half of the citations", True, fact.said(f"{fact.text} [S1][S2]", beside), fresh
    lead = "根据文件，" if language == "zh" else "According to the document, "
    tail = "希望这对您有帮助。" if language == "zh" else " I hope that this helps."
    yield "courtesies", True, fresh, fact.said(f"{lead}{fact.text}{tail}")
    plain = _NUMBER.sub(lambda match: match.group().replace(",", ""), fact.text)
    if plain != fact.text:
        yield "numbers written otherwise", True, fresh, fact.said(plain)
    if moved := _IN_YEAR.match(fact.text):
        phrase, first, rest, end = moved.groups()
        yield "a phrase moved", True, fresh, fact.said(f"{first.upper()}{rest} i{phrase[1:]}{end}")
    short = _NOT.sub(r"\1n't", fact.text)
    if short != fact.text:
        yield "contractions", True, fresh, fact.said(short)


def _different(fact: Fact, beside: Fact, own: list[Fact], rng: random.Random) -> Iterator[Pair]:
    fresh = fact.said()
    yield "another sentence of the passage", False, fresh, beside.said()
    # Both were found, and one cited the other's sentence as well.
    yield "another sentence, one citation shared", False, fresh, beside.said(None, fact)
    moved = _NUMBER.sub(lambda match: str(int(match.group().replace(",", "")) + 7), fact.text, count=1)
    if moved != fact.text:
        yield "a number moved", False, fresh, fact.said(moved)
    moved = _YEAR.sub(lambda match: str(int(match.group()) + 3), fact.text, count=1)
    if moved != fact.text:
        yield "a year moved", False, fresh, fact.said(moved)
    own_names = _NAME.findall(fact.text)
    others = sorted({name for one in own for name in _NAME.findall(one.text)} - set(own_names))
    if own_names and others:
        yield "a name exchanged", False, fresh, fact.said(fact.text.replace(own_names[0], rng.choice(others), 1))
    yield from _turned(fact, own_names)
    denied = _BE.sub(r"\1 not", fact.text, count=1)
    if denied != fact.text:
        yield "denied", False, fresh, fact.said(denied)
    if "是" in fact.text and "不是" not in fact.text:
        yield "denied", False, fresh, fact.said(fact.text.replace("是", "不是", 1))


def _turned(fact: Fact, names: list[str]) -> Iterator[Pair]:
    """The first two names that share no word, unless they only follow each other in a list."""
    for one, other in itertools.combinations(names, 2):
        start, end = fact.text.find(one), fact.text.find(other)
        between = fact.text[start + len(one) : end]
        if set(one.split()).isdisjoint(other.split()) and start < end and between.strip(" ,") not in ("", "and", "or"):
            turned = f"{fact.text[:start]}{other}{between}{one}{fact.text[end + len(other) :]}"
            yield "two names exchanged", False, fact.said(), fact.said(turned)
            return


def paws(file: Path) -> Iterator[Pair]:
    """Every second pair, both as answers that rest on one place."""
    cited = (Cited("article", "v1", 0, 9, ""),)
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        for line in itertools.islice(lines, 1, None, 2):
            row = json.loads(line)
            yield "PAWS", bool(row["same"]), Statement(row["a"], cited), Statement(row["b"], cited)


@dataclass
class Tally:
    pairs: int = 0
    wrong: int = 0
    reasons: Counter[str] = field(default_factory=Counter)

    def add(self, called_wrong: bool, is_error: bool, reason: str) -> None:
        self.pairs += 1
        self.wrong += is_error
        if called_wrong:
            self.reasons[reason] += 1


def measure(pairs: Iterator[Pair]) -> dict[str, Any]:
    kinds: dict[tuple[bool, str], Tally] = {}
    for kind, same, fresh, stored in pairs:
        found = judge(fresh, stored)
        kinds.setdefault((same, kind), Tally()).add(found.wrong, found.wrong == same, found.reason)
    rows: dict[str, Any] = {"same": {}, "different": {}}
    for (same, kind), tally in sorted(kinds.items(), reverse=True):
        rows["same" if same else "different"][kind] = {
            "pairs": tally.pairs,
            "errors": tally.wrong,
            "share": round(tally.wrong / tally.pairs, 4),
            "reasons": dict(tally.reasons.most_common(4)),
        }
    for group, error in (("same", "alarmed"), ("different", "missed")):
        pairs_of = sum(row["pairs"] for row in rows[group].values())
        errors = sum(row["errors"] for row in rows[group].values())
        rows[error] = {"pairs": pairs_of, "errors": errors, "share": round(errors / max(pairs_of, 1), 4)}
    return rows


def show(found: dict[str, Any]) -> None:
    for group, error in (("same", "alarmed"), ("different", "missed")):
        for kind, row in [*found[group].items(), (f"all {group}", found[error])]:
            print(f"  {group:9} {kind:38} {error} {row['errors']:5} of {row['pairs']:5}  {row['share']:.4f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--limit", type=int, default=0, help="passages of each language; 0 is all")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    found: dict[str, Any] = {}
    for language in ("en", "zh"):
        facts = passages(options.data / "retrieval" / f"xquad-{language}")
        if options.limit:
            facts = dict(list(facts.items())[: options.limit])
        rng = random.Random(options.seed)
        found[language] = measure(made(facts, language, rng))
        print(f"XQuAD {language}: {len(facts)} passages")
        show(found[language])
    pairs = paws(options.data / "cache" / "paws_dev.jsonl.gz")
    found["paws"] = measure(itertools.islice(pairs, options.limit or None))
    show(found["paws"])
    print(json.dumps({"benchmark": "judge_error", "judge": JUDGE_REVISION, "seed": options.seed, **found}))


if __name__ == "__main__":
    main()
