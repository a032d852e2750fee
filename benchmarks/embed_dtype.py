"""What bfloat16 gains in speed and costs in quality against float32, in one run; the last line is JSON.

    python -m benchmarks.embed_dtype --data DIR [--cache FOLDER]

DIR holds retrieval/cranfield and retrieval/xquad-en. Quality is nDCG@10 of the dense leg alone, on vectors that the
cache folder keeps between runs. The ratio of speeds is taken from alternating rounds over the same texts, so that other
load on the machine meets both alike. A processor with AMX gains most; one without may lose.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.retrieval_sets import RetrievalSet, StoredVectors, ndcg, read_set
from indexing.embed import Dtype, Embedder, EmbeddingSettings, load_embedder

DTYPES: tuple[Dtype, ...] = ("float32", "bfloat16")


def quality(embedder: Embedder, data: RetrievalSet) -> float:
    """Mean nDCG@10 of exact search by cosine."""
    ids = list(data.documents)
    documents = embedder.encode(list(data.documents.values()))
    questions = np.array([embedder.encode_query(text) for text in data.questions.values()])
    best = np.argsort(-(questions @ documents.T), axis=1, kind="stable")[:, :10]
    return float(
        np.mean(
            [
                ndcg([ids[row] for row in rows], data.relevant[question])
                for question, rows in zip(data.questions, best, strict=True)
            ]
        )
    )


def speeds(embedders: dict[Dtype, Embedder], texts: list[str], rounds: int) -> dict[Dtype, float]:
    """Texts a second of each embedder, the median of alternating rounds."""
    taken: dict[Dtype, list[float]] = {dtype: [] for dtype in embedders}
    for _ in range(rounds + 1):
        for dtype, embedder in embedders.items():
            start = time.perf_counter()
            embedder.encode(texts)
            taken[dtype].append(time.perf_counter() - start)
    return {dtype: len(texts) / float(np.median(seconds[1:])) for dtype, seconds in taken.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "strongroom-vectors")
    parser.add_argument("--sets", nargs="+", default=["cranfield", "xquad-en"])
    parser.add_argument("--texts", type=int, default=128, help="passages in a timed round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--device", default="auto")
    arguments = parser.parse_args()

    embedders = {dtype: load_embedder(EmbeddingSettings(dtype=dtype, device=arguments.device)) for dtype in DTYPES}
    sets = [read_set(arguments.data, name) for name in arguments.sets]
    rate = speeds(embedders, list(sets[0].documents.values())[: arguments.texts], arguments.rounds)
    result: dict[str, object] = {
        "texts_per_second": {dtype: round(value, 1) for dtype, value in rate.items()},
        "speed_ratio": round(rate["bfloat16"] / rate["float32"], 3),
    }
    print(f"{'':12}{'texts/s':>10}" + "".join(f"{data.name:>12}" for data in sets))
    for dtype, embedder in embedders.items():
        stored = StoredVectors(embedder, arguments.cache)
        measured = {data.name: round(quality(stored, data), 4) for data in sets}
        result[f"ndcg10_{dtype}"] = measured
        print(f"{dtype:12}{rate[dtype]:>10.1f}" + "".join(f"{value:>12.4f}" for value in measured.values()))
    print(json.dumps(result))


if __name__ == "__main__":
    main()
