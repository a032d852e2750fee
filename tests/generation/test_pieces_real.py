"""A long prompt in pieces at a real SGLang server: the engine finds what it read, and is charged for once."""

from __future__ import annotations

import asyncio
import random
import secrets
from dataclasses import replace

import pytest

from admission.fair import Party
from benchmarks.fairness_recorded import pool_of, prompt_of
from generation.generator import Piece, Usage
from generation.lanes import LaneTerms
from generation.pieces import Ahead
from tests.generation.prompts import finish_of, soon
from tests.support.sglang_server import RunningServer

pytestmark = pytest.mark.slow
SIZE, TERMS = 512, LaneTerms(slots=8, small_tokens=1_000, piece_tokens=512)


def test_the_engine_reads_each_piece_once(sglang: RunningServer, monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[Usage] = []
    told = Ahead.told

    def noted(self: Ahead[object], piece: Piece) -> Piece:
        if piece.usage is not None and (not heard or piece.usage.input != heard[-1].input):
            heard.append(piece.usage)
        return told(self, piece)

    monkeypatch.setattr(Ahead, "told", noted)

    async def asked(terms: LaneTerms, seed: int) -> Usage:
        pool = pool_of(sglang, terms)
        salt = secrets.token_hex(32)
        prompt = prompt_of(pool, random.Random(seed), 2_500)
        stream = pool.serving(Party("acme", "ana")).generate(
            prompt, salt=salt, request_id="0" * 32, max_tokens=4, deadline=soon(300)
        )
        given = [piece async for piece in stream]
        await pool.aclose()
        return finish_of(given).usage

    in_pieces = asyncio.run(asked(TERMS, 1))
    computed = [usage.input - usage.cached_input for usage in heard]
    assert len(heard) >= 4
    assert all(read < 1.3 * SIZE for read in computed), "what is new, and no more"
    assert sum(computed) < 1.1 * in_pieces.input
    whole = asyncio.run(asked(replace(TERMS, piece_tokens=None), 1))
    assert in_pieces == whole, "who asks pays for the same"
