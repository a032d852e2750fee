"""How a tenant's documents are cut: by its contract, number by number, else as the deployment does."""

from __future__ import annotations

from dataclasses import replace

import msgspec

from indexing.chunk import Chunking
from tenancy.contract import ChunkingTerms


def chunking_of(terms: ChunkingTerms, otherwise: Chunking) -> Chunking:
    """`otherwise` with what `terms` say. Raises `InvalidInput` where the numbers do not go together."""
    given = {name: value for name, value in msgspec.structs.asdict(terms).items() if value is not None}
    return replace(otherwise, **given) if given else otherwise
