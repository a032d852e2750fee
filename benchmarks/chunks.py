"""How many chunks an edit changes, and how many are longer than the model's window; the last line is JSON.

    python -m benchmarks.chunks --data DIR [--edits N]

DIR holds retrieval/scifact and the others. Long texts are made of SciFact's abstracts: with headings, in paragraphs,
in lines, and as one paragraph. Each edit is a few words more or other, or up to 150 characters less, at a random place.
The window is the default model's, and what it reads of a chunk counts with the chunk's context. Nothing is embedded.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from benchmarks.retrieval_sets import read_set
from indexing.chunk import Ruler, chunk, embedded_text
from indexing.embed import Embedder, EmbeddingSettings, load_embedder

ABSTRACTS = 300
WINDOWS = {"xquad-en": 240, "xquad-zh": 240, "xquad-de": 240, "scifact": 400}
"""Documents of each set whose chunks are held against the window."""


def long_texts(abstracts: list[str]) -> Mapping[str, str]:
    return {
        "headings": "\n\n".join(f"## {one.partition('.')[0][:80]}\n\n{one}" for one in abstracts),
        "paragraphs": "\n\n".join(abstracts),
        "lines": "\n".join(sentence for one in abstracts for sentence in one.split(". ")),
        "prose": " ".join(abstracts),
    }


def edited(dice: random.Random, text: str) -> str:
    at = text.index(" ", dice.randrange(len(text) - 400))
    match dice.randrange(3):
        case 0:
            return f"{text[:at]} another few words here{text[at:]}"
        case 1:
            return text[:at] + text[text.index(" ", at + dice.randrange(5, 150)) :]
        case _:
            return f"{text[:at]} changed{text[text.index(' ', at + 1) :]}"


def changes(text: str, edits: int) -> dict[str, float]:
    """Chunks whose text is new after an edit."""
    dice, started = random.Random(1), time.process_time()
    pieces = chunk(text)
    seconds = time.process_time() - started
    known = {piece.text for piece in pieces}
    changed = sorted(sum(piece.text not in known for piece in chunk(edited(dice, text))) for _ in range(edits))
    return {
        "chunks": len(pieces),
        "mean": round(statistics.mean(changed), 2),
        "p95": changed[int(0.95 * (edits - 1))],
        "most": changed[-1],
        "seconds_a_megabyte": round(seconds * 1e6 / len(text), 2),
    }


def lengths(texts: list[str], embedder: Embedder) -> dict[str, int]:
    """Tokens of what the model reads, special ones not counted."""
    ruler = Ruler(embedder.token_starts, embedder.fingerprint.window)
    read = [
        embedder.token_count(embedded_text(piece.text, piece.context))
        for text in texts
        for piece in chunk(text, ruler=ruler)
    ]
    beyond = sum(tokens > embedder.fingerprint.window - 2 for tokens in read)
    return {"chunks": len(read), "longest": max(read), "beyond_window": beyond}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--edits", type=int, default=60)
    arguments = parser.parse_args()
    abstracts = list(read_set(arguments.data, "scifact").documents.values())
    edits: dict[str, dict[str, float]] = {}
    for name, text in long_texts(abstracts[:ABSTRACTS]).items():
        edits[name] = changes(text, arguments.edits)
        print(f"{name:<12}{edits[name]}", flush=True)
    embedder = load_embedder(EmbeddingSettings())
    windows: dict[str, dict[str, int]] = {}
    for name, count in WINDOWS.items():
        texts = list(read_set(arguments.data, name).documents.values())[:count]
        windows[name] = lengths(texts, embedder)
        print(f"{name:<12}{windows[name]}", flush=True)
    print(json.dumps({"model": embedder.fingerprint.name, "edits": edits, "windows": windows}))
    return 1 if any(found["beyond_window"] for found in windows.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
