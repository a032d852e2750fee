"""Score: a calibrated probability that one answer serves two questions, from their similarity and their words."""

from __future__ import annotations

from cache.score.fitted import FittedScore, default_score

__all__ = ["FittedScore", "default_score"]
