"""How near a text is to a question, token by token.

Each token of the question looks for the token nearest to it in what is read; the mean of these cosines is the likeness
(late interaction: Khattab and Zaharia, "ColBERT", SIGIR 2020, here with models that were not trained for it).
"""

from __future__ import annotations

from typing import Final

import numpy as np

from indexing.embedders.port import Vectors

COVERED: Final = 0.5
"""Least knowledge of a question's language (`Embedder.covers`) at which a model's likeness counts."""


def late_likeness(cosines: Vectors) -> float:
    """Of `cosines` (question's tokens, tokens read), at most 1; 0 where either side has no token."""
    return float(np.mean(cosines.max(axis=1))) if cosines.size else 0.0
