"""Questions about the policies of a company, asked over the whole path: is the right page cited? The last line is JSON.

    python -m benchmarks.policy_answers --data DIR [--questions FILE] [--home FOLDER] [--embedder MODEL]
        [--rerank MODEL] [--settings FILE] [--show]

DIR holds documents/policies (PDFs). They are ingested, and the questions answered, by the functions that the service
uses, with the settings as they are delivered: the packaged embedding model and answers of copied sentences. Each line
of FILE is a question with the document and the page that answer it, or without: then no document does. The questions
were written by somebody who had seen only the PDFs. With `--home` what was ingested stays in FOLDER for the next run;
each MODEL, as in `[embedding] model`, needs a folder of its own. `--rerank embedding` has 16 passages read again.
`--settings` names further settings in TOML, as of a `[generation]` with a model that writes.

An answer counts where the first citation is on the right page of the right document. For each miss the table names the
step that missed: the search (the rank of the best passage of that page), the abstention, or the choice of the sentence.
The exit code is 1 below 27 right pages of 30, or below 7 refusals of 8 (the same shares of other numbers).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import secrets
import sys
import tempfile
import time
from collections import Counter
from contextlib import aclosing
from dataclasses import asdict, dataclass
from pathlib import Path

from indexing.embed import DEFAULT_MODEL
from indexing.ingest import Source, ingest
from retrieval.abstain import weigh
from retrieval.answer import answer
from retrieval.passage import Passage
from retrieval.question import Answer, Done, Question
from retrieval.rerank import best_apart, texts_of
from retrieval.search import open_scope, search
from service.settings import load_settings
from service.wiring import Services, build
from tenancy.acl import AccessList
from tenancy.identity import Principal, Role
from tenancy.keys import MasterKey
from tenancy.tenant import TenantHandle

TENANT = "inazuma"
DEPTH = 50
"""How far down the ranking the right page is looked for."""

READ_AGAIN = 16

COVERED = 0.5
"""As in `retrieval.sources`: least knowledge of a language at which a model's similarity counts."""

CITED, DECLINED = 27 / 30, 7 / 8


@dataclass(frozen=True)
class Case:
    """`document` and `pages` answer it; without a document, nothing does."""

    question: str
    document: str | None
    pages: frozenset[str]


@dataclass(frozen=True)
class Result:
    """`missed` is the step at which the right page was lost, or None. `rank` is that of its best passage, from 1.

    `among` says whether any citation of the answer is on the right page.
    """

    question: str
    wanted: str
    given: str
    rank: int | None
    strength: float
    missed: str | None
    among: bool


def read_cases(file: Path) -> list[Case]:
    cases = []
    for line in file.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        pages = row.get("pages") or ([row["page"]] if row.get("page") else [])
        cases.append(Case(row["question"], row.get("document"), frozenset(f"page {page}" for page in pages)))
    return cases


class Company:
    """A tenant that holds the policies, and one reader."""

    def __init__(self, folder: Path, model: str = DEFAULT_MODEL, rerank: str = "", further: str = "") -> None:
        config = folder / "settings.toml"
        config.write_text(
            f'data_dir = "{folder}/data"\n[embedding]\nmodel = "{model}"\n'
            f'[retrieval.rerank]\nmodel = "{rerank}"\ndepth = {READ_AGAIN}\n{further}',
            encoding="utf-8",
        )
        # Public documents: the key of a folder that is kept may be known.
        self.services: Services = build(load_settings(config, environment={}), MasterKey(bytes(range(32))))
        control = self.services.control
        if TENANT not in {record.name for record in control.tenants.all()}:
            control.tenants.create(TENANT)
        key = control.tenants.create_key(TENANT, "reader", [Role.READER])
        self.principal: Principal = control.authenticator.authenticate(key.text, "192.0.2.1")
        self.tenant: TenantHandle = control.tenants.open(self.principal)

    def load(self, policies: Path) -> int:
        """Chunks of all PDFs."""
        access, found = AccessList.of(["tenant"]), 0
        for file in sorted(policies.glob("*.pdf")):
            for outcome in ingest(self.tenant, self.services.pipeline, Source(file.name, file.read_bytes(), access)):
                if outcome.error is not None:
                    raise SystemExit(f"not ingested: {outcome}")
                found += outcome.chunks
        return found

    async def answered(self, text: str) -> Answer:
        asked = Question(text, secrets.token_hex(16), cache="bypass")
        async with aclosing(answer(self.services.path, self.principal, asked)) as events:
            last = [event async for event in events][-1]
        if not isinstance(last, Done):
            raise SystemExit("an answer did not end")
        return last.answer

    async def ask(self, case: Case) -> Result:
        path = self.services.path
        embedder = path.embedders.default
        scope = open_scope(self.principal, self.tenant, path.collections)
        found = search(
            self.tenant, self.principal, scope, case.question, embedder.encode_query(case.question), DEPTH,
            model=embedder.fingerprint, covers=embedder.covers(case.question), copies_last=True,
        )  # fmt: skip
        items = found.items
        if path.reranker is not None:
            again, rest = items[: path.reranker.depth], items[path.reranker.depth :]
            scores = path.reranker.scores(case.question, texts_of(again))
            items = (*best_apart(again, scores, len(again), path.reranker.share), *rest)
        best = items[: path.settings.top_k]
        similarity = found.similarity if embedder.covers(case.question) >= COVERED else None
        evidence = weigh(case.question, best, similarity=similarity, model=embedder.fingerprint.name)
        ranks = [rank for rank, passage in enumerate(items, 1) if shows(passage, case)]
        rank = ranks[0] if ranks else None
        got = await self.answered(case.question)
        first = got.citations[0] if got.citations else None
        given = f"{first.document}, {first.place}" if first else got.finish
        wanted = f"{case.document}, {' or '.join(sorted(case.pages))}" if case.document else "abstain"
        hits = [one.document == case.document and one.place in case.pages for one in got.citations]
        right = hits[:1] == [True]
        if case.document is None:
            missed = None if got.finish == "abstain" else "abstention"
        elif right:
            missed = None
        elif rank is None or rank > path.settings.top_k:
            missed = "search"
        else:
            missed = "abstention" if first is None else "sentence"
        return Result(case.question, wanted, given, rank, round(evidence.strength, 3), missed, any(hits))


def shows(passage: Passage, case: Case) -> bool:
    places = {passage.place, *(label for _, label in passage.turns)}
    return passage.document == case.document and not places.isdisjoint(case.pages)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--questions", type=Path, default=Path(__file__).with_name("policy_questions.jsonl"))
    parser.add_argument("--home", type=Path)
    parser.add_argument("--embedder", default=DEFAULT_MODEL)
    parser.add_argument("--rerank", default="")
    parser.add_argument("--settings", type=Path)
    parser.add_argument("--show", action="store_true", help="every question, not only those that missed")
    options = parser.parse_args()
    policies = options.data / "documents" / "policies"
    cases = read_cases(options.questions)
    with tempfile.TemporaryDirectory(prefix="strongroom-answers-") as folder:
        home = options.home or Path(folder)
        home.mkdir(parents=True, exist_ok=True)
        further = options.settings.read_text(encoding="utf-8") if options.settings else ""
        company = Company(home, options.embedder, options.rerank, further)
        begun = time.perf_counter()
        chunks = company.load(policies if policies.is_dir() else options.data)
        loaded = time.perf_counter() - begun
        results: list[Result] = []

        async def ask_all() -> None:
            for case in cases:
                results.append(await company.ask(case))
            await company.services.aclose()

        asyncio.run(ask_all())
    for result in results:
        if options.show or result.missed:
            print(f"{result.missed or 'right'}: {result.question}\n    wanted {result.wanted}; given {result.given}")
            print(f"    rank of the page {result.rank}, strength {result.strength}", flush=True)
    return conclude(cases, results, chunks, loaded)


def conclude(cases: list[Case], results: list[Result], chunks: int, loaded: float) -> int:
    answerable = [result for case, result in zip(cases, results, strict=True) if case.document]
    others = [result for case, result in zip(cases, results, strict=True) if not case.document]
    cited = sum(result.missed is None for result in answerable)
    declined = sum(result.missed is None for result in others)
    print(f"right page cited first: {cited} of {len(answerable)}; declined: {declined} of {len(others)}")
    print(
        json.dumps(
            {
                "chunks": chunks, "seconds_to_load": round(loaded), "answerable": len(answerable), "cited": cited,
                "among": sum(result.among for result in answerable),
                "unanswerable": len(others), "declined": declined,
                "missed": dict(Counter(result.missed for result in results if result.missed)),
                "misses": [asdict(result) for result in results if result.missed],
            },
            ensure_ascii=False,
        )
    )  # fmt: skip
    return 0 if cited >= CITED * len(answerable) and declined >= DECLINED * len(others) else 1


if __name__ == "__main__":
    sys.exit(main())
