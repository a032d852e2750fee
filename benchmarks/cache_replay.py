"""Replay of a realistic stream through the cache: hits, wrong ones among them, generations saved, over time.

    python -m benchmarks.cache_replay --data ../shared/data/cache [--length 5000] [--topics 3000] [--quick]

The stream is that of `benchmarks.replay_stream`. Every question takes the product's own way through `cache.lookup` and
`cache.store` with real embeddings (computed once, before) and the ladder as shipped; the generator is a stand-in whose
answer names the topic, so that a wrong hit is seen exactly. Variants:

    opened        the template is opened by an operator: what passes the rungs is served
    certified A/P nothing is opened; would-be hits are answered afresh and compared until the certificate for the
                  target A stands (an ideal judge: it knows the topic), then served, some still compared; the first P
                  of an entry are on probation and never count for the certificate (2 is what is shipped)
    cosine T      plain cosine at threshold T over the same stream, no rung: what is done elsewhere

"saved" are answers that were not generated. The last line is one JSON object; a plot goes to benchmarks/out/.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from benchmarks.cache_company import Company, identity, shipped_ladder
from benchmarks.cache_rivals import missing
from benchmarks.replay_stream import Asking, Stream, load
from cache.certificate import evidence, negatives
from cache.certificate.evidence import Judged, Place
from cache.certificate.judge import JUDGE_REVISION
from cache.entry import Entry, canonical_payload, sealed
from cache.ladder import Ladder
from cache.lookup import Asked, Hit, Miss, Mode, ask, exact, semantic
from cache.policy import CachePolicy, TemplatePolicy
from cache.store import Completed, put
from cache.stores.local import LocalStore
from indexing.embed import Embedder, EmbeddingSettings, Vectors, load_embedder
from tenancy.domain import permission_domain

OUT = Path(__file__).parent / "out"
STEPS = 10
SHOWN = 5
THRESHOLDS = (0.80, 0.90)
KINDS = ("exact", "semantic", "wrong", "denied", "generated", "checked")


@dataclass
class Tally:
    """Counts by step of the stream. `wrong` and `denied` are among the hits, `checked` among the generated."""

    length: int
    counts: dict[str, list[int]] = field(default_factory=lambda: {kind: [0] * STEPS for kind in KINDS})
    pairs: Counter[tuple[str, str]] = field(default_factory=Counter)

    def add(self, position: int, *kinds: str) -> None:
        for kind in kinds:
            self.counts[kind][min(STEPS - 1, position * STEPS // self.length)] += 1

    def wrong(self, position: int, asked: str, served: str, *, denied: bool) -> None:
        """Note a wrong hit: the answer to `served` went to `asked`."""
        self.add(position, "wrong", *(["denied"] if denied else []))
        self.pairs[asked, served] += 1

    def summary(self) -> dict[str, Any]:
        total = {kind: sum(found) for kind, found in self.counts.items()}
        hits = total["exact"] + total["semantic"]
        return total | {
            "questions": self.length,
            "hit_rate": round(hits / self.length, 4),
            "exact_rate": round(total["exact"] / self.length, 4),
            "semantic_rate": round(total["semantic"] / self.length, 4),
            "wrong_of_semantic": round(total["wrong"] / max(1, total["semantic"]), 4),
            "saved": self.length - total["generated"],
        }


@dataclass
class Way:
    """One run of the product's cache over the stream."""

    company: Company
    store: LocalStore
    embedder: Embedder
    vectors: dict[str, Vectors]
    ladder: Ladder
    stream: Stream

    def run(self) -> Tally:
        tally = Tally(len(self.stream.askings))
        for position, asking in enumerate(self.stream.askings):
            self.one(position, asking, tally)
        return tally

    def one(self, position: int, asking: Asking, tally: Tally) -> None:
        asked, found = self.look_up(asking)
        if isinstance(found, Hit):
            tally.add(position, found.kind)
            if _topic(found.entry) != asking.topic:
                served = found.entry.question
                tally.wrong(position, asking.text, served, denied=self.stream.is_denied(asking.text, served))
            return
        tally.add(position, "generated")
        if found.would is not None and found.would.purpose != "none":
            tally.add(position, "checked")
            self.judge(asked, found, asking)
        self.remember(asked, asking)

    def look_up(self, asking: Asking) -> tuple[Asked, Hit | Miss]:
        company = self.company
        with company.tenant.reading() as view:
            domain = permission_domain(company.principal, view)
            asked = ask(
                domain, view, identity(domain), asking.text, template="default", mode=Mode.DEFAULT, follow_up=False,
                policy=self.store.policy.of("default"),
            )  # fmt: skip
            found = exact(domain, view, self.store, asked)
            if isinstance(found, Hit):
                return asked, found
            tokens = self.embedder.question_length(asking.text)
            window = self.embedder.fingerprint.window
            vector = self.vectors[asking.text]
            return asked, semantic(
                domain, view, self.store, asked, vector, tokens=tokens, limit=window, ladder=self.ladder
            )

    def judge(self, asked: Asked, missed: Miss, asking: Asking) -> None:
        """Compare the entry that would have been served with the truth, and let it count."""
        assert missed.would is not None
        assert missed.standing is not None
        would, standing, now = missed.would, missed.standing, self.store.clock()
        purpose = would.purpose
        assert purpose != "none"
        same = _topic(would.entry) == asking.topic
        place = Place("default", standing.ladder, asked.space, asked.policy.alpha)
        tenant = self.company.tenant
        with tenant.writing() as view:
            evidence.record(view, place, Judged(purpose, "same" if same else "wrong", "", would.entry.id), now)
            if not same:
                pair = negatives.pair_of(tenant, asked.question, would.entry.question)
                negatives.add(view, pair, source="shadow", now=now)
        if same:
            self.store.confirm(tenant, sealed(tenant, replace(would.entry, confirmed=would.entry.confirmed + 1)))
        else:
            self.store.discard(tenant, would.entry)

    def remember(self, asked: Asked, asking: Asking) -> None:
        company = self.company
        with company.tenant.reading() as view:
            epochs = view.epochs
        answer = Completed(
            payload=canonical_payload({"topic": asking.topic, "text": f"The answer to topic {asking.topic}."}),
            finish_reason="stop",
            abstained=False,
            verified_citations=1,
            dependencies=((1, "sha256:1"),),
            epochs=epochs,
            vector=self.vectors[asking.text],
            audit_seq=1,
        )
        put(company.tenant, company.principal, self.store, asked, answer)


def cosine(stream: Stream, vectors: dict[str, Vectors], threshold: float) -> Tally:
    """The nearest stored question serves from `threshold` on; an equal one is exact."""
    tally = Tally(len(stream.askings))
    kept = np.empty((len(stream.askings), len(next(iter(vectors.values())))), dtype=np.float32)
    texts: list[str] = []
    topics: list[int] = []
    for position, asking in enumerate(stream.askings):
        vector = vectors[asking.text]
        if texts:
            scores = kept[: len(texts)] @ vector
            best = int(scores.argmax())
            if texts[best] == asking.text or scores[best] >= threshold:
                tally.add(position, "exact" if texts[best] == asking.text else "semantic")
                if topics[best] != asking.topic:
                    denied = stream.is_denied(asking.text, texts[best])
                    tally.wrong(position, asking.text, texts[best], denied=denied)
                continue
        tally.add(position, "generated")
        kept[len(texts)] = vector
        texts.append(asking.text)
        topics.append(asking.topic)
    return tally


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--length", type=int, default=5_000, help="questions")
    parser.add_argument("--topics", type=int, default=3_000, help="of Quora's clusters; the bank's come on top")
    parser.add_argument("--alphas", default="0.01,0.05", help="targets of the runs under a certificate")
    parser.add_argument("--probations", default="2,0", help="hits of a new entry that are always compared")
    parser.add_argument("--quick", action="store_true", help="600 questions about 60 clusters, one target")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.length, arguments.topics, arguments.alphas, arguments.probations = 600, 60, "0.05", "0"
    folder = arguments.data if (arguments.data / "qqp_dev.jsonl.gz").exists() else arguments.data / "cache"
    stream = load(folder, length=arguments.length, topics=arguments.topics)
    embedder = load_embedder(EmbeddingSettings())
    texts = sorted({asking.text for asking in stream.askings})
    vectors = dict(zip(texts, embedder.encode(texts), strict=True))
    banking = sum(asking.source == "banking" for asking in stream.askings)
    print(f"{len(stream.askings)} questions ({banking} to the bank), {len(texts)} different, {stream.topics} topics")
    # Opened, nothing is drawn: what is compared is no hit, and the run is about hits.
    tallies = {"opened": replayed(stream, embedder, vectors, "opened", TemplatePolicy(shadow=0.0, probation=0))}
    for alpha in map(float, arguments.alphas.split(",")):
        for probation in map(int, arguments.probations.split(",")):
            name = f"certified {alpha:g}/{probation}"
            policy = TemplatePolicy(alpha=alpha, probation=probation)
            tallies[name] = replayed(stream, embedder, vectors, name, policy)
    for threshold in THRESHOLDS:
        tallies[f"cosine {threshold:.2f}"] = cosine(stream, vectors, threshold)
    for name, tally in tallies.items():
        show(name, tally)
    plotted = plot(tallies, OUT / "cache_replay.png")
    print(json.dumps({"plot": plotted, **{name: tally.summary() for name, tally in tallies.items()}}))


def replayed(
    stream: Stream, embedder: Embedder, vectors: dict[str, Vectors], name: str, policy: TemplatePolicy
) -> Tally:
    """One run in a fresh tenant: `opened`, or under a certificate."""
    opened = name == "opened"
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        company = Company.found(Path(folder), threshold=0.5 if opened else None)
        random = np.random.default_rng(8).random
        chosen = shipped_ladder(random=random, judge=None if opened else JUDGE_REVISION)
        store = LocalStore(CachePolicy(template=policy))
        tally = Way(company, store, embedder, vectors, chosen, stream).run()
        with company.tenant.reading() as view:
            for row in evidence.evidence(view):
                print(f"{name}: {row.state}, {row.k} wrong of {row.n} uniform labels, at most {row.upper:.4f} wrong")
        company.tenants.close()
    print(f"{name}: replayed in {time.perf_counter() - started:.0f} s")
    return tally


def show(name: str, tally: Tally) -> None:
    total = tally.summary()
    print(
        f"\n{name}: hit rate {total['hit_rate']:.3f} (exact {total['exact_rate']:.3f}, semantic "
        f"{total['semantic_rate']:.3f}), wrong {total['wrong']} of {total['semantic']} semantic hits "
        f"({100 * total['wrong_of_semantic']:.2f} %; {total['denied']} of them called different by a person), "
        f"{total['saved']} generations saved of {total['questions']}, {total['checked']} compared"
    )
    print("  step " + "".join(f"{kind:>10}" for kind in KINDS))
    for step in range(STEPS):
        print(f"  {step + 1:4} " + "".join(f"{tally.counts[kind][step]:10}" for kind in KINDS))
    for (asked, served), times in tally.pairs.most_common(SHOWN):
        print(f"  wrong {times:4} times: {asked!r} was given the answer to {served!r}")


def plot(tallies: dict[str, Tally], path: Path) -> str | None:
    """Hit rate and wrong hits over the stream; None where matplotlib is not installed."""
    if reason := missing("matplotlib"):
        print(f"no plot: {reason}")
        return None
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    figure, (above, below) = pyplot.subplots(2, 1, figsize=(9, 8), sharex=True)
    for name, tally in tallies.items():
        size = tally.length / STEPS
        at = [(step + 1) * size for step in range(STEPS)]
        style = "--" if name.startswith("cosine") else "-"
        hits = [exact + near for exact, near in zip(tally.counts["exact"], tally.counts["semantic"], strict=True)]
        above.plot(at, [100 * number / size for number in hits], style, marker=".", label=name)
        below.plot(at, np.cumsum(tally.counts["wrong"]), style, marker=".", label=name)
    above.set_ylabel("hits, % of questions")
    below.set_ylabel("wrong hits so far")
    below.set_xlabel("questions")
    below.set_yscale("symlog")
    above.legend()
    figure.suptitle("The cache over a stream: QQP clusters and a bank's intents, Zipf popularity")
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
    print(f"plot: {path}")
    return str(path)


def _topic(entry: Entry) -> int:
    return int(msgspec.json.decode(entry.payload)["topic"])


if __name__ == "__main__":
    main()
