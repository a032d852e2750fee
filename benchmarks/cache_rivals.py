"""GPTCache and RedisVL behind one interface, with vectors that are given: their own embedding models are not called."""

from __future__ import annotations

import importlib.util
import logging
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.cache_company import Vectors


def gptcache(
    folder: Path, questions: Sequence[str], vectors: Vectors, answer: str, vector_of: Mapping[str, Any]
) -> Callable[[str], object]:
    """GPTCache 0.1 as its documentation sets it up: SQLite and FAISS below `folder`, one similarity evaluation.

    The function that is returned looks one question up; `vector_of` gives the vector of every text that it meets.
    """
    from gptcache import Cache, Config
    from gptcache.adapter.api import get
    from gptcache.manager import CacheBase, VectorBase, get_data_manager
    from gptcache.similarity_evaluation.distance import SearchDistanceEvaluation

    folder.mkdir(parents=True)
    # At the end of the process it saves its index once more, into a folder that is gone by then.
    logging.getLogger("gptcache").setLevel(logging.CRITICAL)
    with warnings.catch_warnings():
        # It calls SQLAlchemy by names that are on their way out.
        warnings.simplefilter("ignore")
        manager = get_data_manager(
            CacheBase("sqlite", sql_url=f"sqlite:///{folder}/gptcache.db"),
            VectorBase("faiss", dimension=vectors.shape[1], index_path=str(folder / "faiss.index")),
            max_size=10 * len(questions),
        )
    cache = Cache()
    cache.init(
        pre_embedding_func=lambda data, **_: data.get("prompt"),
        embedding_func=lambda text, **_: vector_of[text],
        data_manager=manager,
        similarity_evaluation=SearchDistanceEvaluation(),
        config=Config(similarity_threshold=0.8),
    )
    for start in range(0, len(questions), 1_000):
        some = list(questions[start : start + 1_000])
        cache.import_data(some, [answer] * len(some))
    return lambda text: get(text, cache_obj=cache)


def redisvl(client: Any, questions: Sequence[str], vectors: Vectors, answer: str) -> Callable[[int], object]:
    """RedisVL's SemanticCache at `client`. Raises what RedisVL raises where the server has no search module."""
    from redisvl.extensions.cache.llm import SemanticCache
    from redisvl.utils.vectorize import CustomVectorizer

    vectorizer = CustomVectorizer(lambda *_, **__: [0.0] * vectors.shape[1])
    cache = SemanticCache(name="rival", redis_client=client, vectorizer=vectorizer, distance_threshold=0.1)
    for question, vector in zip(questions, vectors, strict=True):
        cache.store(question, answer, vector=vector.tolist())
    return lambda number: cache.check(vector=vectors[number].tolist())


def missing(package: str) -> str | None:
    """Why a rival cannot run: its package is not here."""
    if importlib.util.find_spec(package) is None:
        return f"the package {package} is not installed (extra `bench`)"
    return None
