"""Three tenants with the same passages in three languages: does anything of one reach another? Last line: JSON.

    python -m benchmarks.parallel_tenants --data DIR [--questions N] [--model NAME] [--cache FOLDER]

DIR holds retrieval/xquad-en, -de and -zh: the same 240 passages and 1,190 questions in English, German and Chinese.
Each language is one tenant. First a sample of questions is asked in fresh deployments, of all tenants together and of
each alone: answers, scores and sequence numbers must be equal, so no count or statistic depends on who else is there.

Then all questions of all three languages are asked in each tenant over HTTP, for passages and for an answer (every
fifth streamed, every seventh repeated by a colleague), the three tenants beside each other. Every response with its
headers, listings and refusals, every audit event and every log line is searched for ids, titles, tenant names and
pieces of the others' passages: any run of 30 characters, of 12 in Chinese. Log lines may not hold any passage or
question at all.

recall@5 is of each tenant's own questions (hybrid); the embedding model knows English only. The model is deterministic,
so each text is embedded once, before anything is asked, and vectors are kept in the cache folder between runs. Exit
code 1 where anything is found.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.retrieval_sets import StoredVectors, read_set
from indexing.chunk import Chunking, chunk
from indexing.embed import DEFAULT_MODEL, Embedder, EmbeddingSettings, Vectors, load_embedder
from tests.isolation.parallel import Report, ask_everything, examine, open_site
from tests.isolation.traces import Detector, Library

LANGUAGES = ("en", "de", "zh")
WINDOWS = {"en": (24, 7), "de": (24, 7), "zh": (10, 3)}
SAMPLE = 40
"""Questions of each language that are asked in the deployments that are compared."""


class Remembered:
    """An embedder that knows the vectors of all texts beforehand; what it does not know it computes."""

    def __init__(self, embedder: Embedder, libraries: Sequence[Library], cache: Path) -> None:
        self.spec = embedder.spec
        self.fingerprint = embedder.fingerprint
        self.token_count = embedder.token_count
        self.question_length = embedder.question_length
        self.token_starts = embedder.token_starts
        self.covers = embedder.covers
        self._embedder = embedder
        stored = StoredVectors(embedder, cache)
        texts = [piece.text for library in libraries for text in library.passages for piece in chunk(text, Chunking())]
        self._passages = dict(zip(texts, stored.encode(texts), strict=True))
        questions = [text for library in libraries for text, _ in library.questions]
        self._questions = {text: stored.encode_query(text) for text in questions}

    def encode(self, texts: Sequence[str]) -> Vectors:
        known = [self._passages.get(text) for text in texts]
        if any(vector is None for vector in known):
            return self._embedder.encode(texts)
        return np.array(known, dtype=np.float32)

    def encode_query(self, text: str) -> Vectors:
        known = self._questions.get(text)
        return self._embedder.encode_query(text) if known is None else known


def read_library(data: Path, code: str, questions: int | None) -> Library:
    found = read_set(data, f"xquad-{code}")
    numbers = {document: number for number, document in enumerate(found.documents)}
    asked = [(text, numbers[next(iter(found.relevant[question]))]) for question, text in list(found.questions.items())]
    width, step = WINDOWS[code]
    return Library(code, tuple(found.documents.values()), tuple(asked[:questions]), width, step)


async def independence(libraries: Sequence[Library], detector: Detector, embedder: Embedder, folder: Path) -> list[str]:
    """Where a tenant's answers differ between a deployment with the others and one of its own."""
    sample = [replace(library, questions=library.questions[:SAMPLE]) for library in libraries]

    async def bodies(name: str, tenants: Sequence[Library]) -> dict[str, list[str]]:
        async with open_site(folder / name, tenants, detector, model="", embedder=embedder) as site:
            await ask_everything(site, sample)
            return {tenant: found.bodies for tenant, found in site.tenants.items()}

    together = await bodies("together", sample)
    different: list[str] = []
    for library in sample:
        alone = await bodies(library.code, [library])
        pairs = zip(together[library.tenant], alone[library.tenant], strict=True)
        count = sum(one != other for one, other in pairs)
        print(f"{library.code}: {len(alone[library.tenant])} responses alone and beside others, {count} differ")
        different += [f"{library.tenant}: {count} responses depend on the other tenants"] if count else []
    return different


async def run(libraries: Sequence[Library], detector: Detector, embedder: Embedder, folder: Path) -> Report:
    different = await independence(libraries, detector, embedder, folder)
    begun = time.perf_counter()
    async with open_site(folder / "all", libraries, detector, model="", embedder=embedder) as site:
        print(f"{sum(len(library.passages) for library in libraries)} passages in {_since(begun)}", flush=True)
        report = await examine(site, libraries)
    print(f"{report.requests.total():,} requests in {_since(begun)}", flush=True)
    report.findings += different
    return report


def show(report: Report, libraries: Sequence[Library]) -> dict[str, Any]:
    """Print what was asked and found; returns it as one object."""
    print(f"\n{'tenant':8}{'own asked':>11}{'recall@5':>10}{'recall@1':>10}{'cited':>8}{'cache hits':>12}{'events':>9}")
    tenants: dict[str, Any] = {}
    for library in libraries:
        code, ranks = library.code, report.ranks[library.code]
        first = ranks[1] / ranks.total()
        row = {
            "own_questions": ranks.total(),
            "recall_at_5": round(report.recall(code), 4),
            "recall_at_1": round(first, 4),
            "own_answers_cited": report.cited[code],
            "cache_hits": report.hits[code],
            "audit_events": report.audit_events[code],
        }
        tenants[code] = row
        print(
            f"{code:8}{ranks.total():>11,}{row['recall_at_5']:>10.4f}{first:>10.4f}{report.cited[code]:>8,}"
            f"{report.hits[code]:>12,}{report.audit_events[code]:>9,}"
        )
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in report.requests.items())
    print(f"searched: {kinds}; {report.log_lines:,} log lines; {report.audit_events.total():,} audit events")
    for finding in report.findings[:20]:
        print(f"FOUND {finding}", file=sys.stderr)
    print(f"traces of another tenant: {len(report.findings)}")
    return {
        "questions_a_tenant": sum(len(library.questions) for library in libraries),
        "requests": dict(report.requests),
        "log_lines": report.log_lines,
        "tenants": tenants,
        "findings": len(report.findings),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--questions", type=int, help="of each language; all without")
    parser.add_argument("--model", default=DEFAULT_MODEL)
    parser.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "strongroom-vectors")
    arguments = parser.parse_args()
    begun = time.perf_counter()
    libraries = [read_library(arguments.data, code, arguments.questions) for code in LANGUAGES]
    model = load_embedder(EmbeddingSettings(model=arguments.model))
    embedder = Remembered(model, libraries, arguments.cache)
    print(f"vectors of all passages and questions in {_since(begun)}", flush=True)
    with tempfile.TemporaryDirectory(prefix="strongroom-parallel-") as folder:
        report = asyncio.run(run(libraries, Detector(libraries), embedder, Path(folder)))
    result = show(report, libraries) | {"seconds": round(time.perf_counter() - begun)}
    print(json.dumps(result))
    return 1 if report.findings else 0


def _since(begun: float) -> str:
    return f"{time.perf_counter() - begun:.0f} s"


if __name__ == "__main__":
    sys.exit(main())
