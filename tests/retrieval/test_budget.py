"""An answer that runs out of tokens ends there, is paid as far as it came, and the next one is refused."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest

from admission.expected import FIRST_OUTPUT
from generation.generator import Delta as Piece
from generation.generator import Finish, ModelIdentity, Usage
from generation.prompt import Prompt
from tenancy.errors import LimitExceeded
from tenancy.limits import Limits, TenantLimits
from tests.support.path import open_path
from tests.support.people import Company
from tests.support.spent import Spent, spent

ASKED = "How long is the notice period?"
WORDS = 8


class Talker:
    """Says so many pieces of `WORDS` tokens; `closed` counts the generations that were given up."""

    identity = ModelIdentity("talker", "1", "none")
    salted = True

    def __init__(self, pieces: int) -> None:
        self.pieces = pieces
        self.closed = 0

    def count(self, text: str) -> int:
        return len(text.split())

    async def generate(
        self, prompt: Prompt, *, salt: str, request_id: str, max_tokens: int, deadline: float
    ) -> AsyncGenerator[Piece | Finish, None]:
        try:
            for _ in range(self.pieces):
                yield Piece("the notice period is three months [S1] and ")
            yield Finish("stop", Usage(100, 0, WORDS * self.pieces))
        except GeneratorExit:
            self.closed += 1
            raise

    async def aclose(self) -> None:
        return None


@pytest.mark.parametrize(("pieces", "finish"), [(1_000, "budget"), (20, "stop")])
def test_output_beyond_a_limit_ends_the_answer(acme: Company, pieces: int, finish: str) -> None:
    bo, talker = acme.principal("bo"), Talker(pieces)
    limits = TenantLimits(user=Limits(output_tokens_per_minute=400))
    with open_path(acme.tenants, generator=talker, limits=limits) as path:
        path.put(acme.handle, "notice.txt", "The notice period is three months.", "tenant")
        found = path.ask(bo, ASKED)
        assert found.finish == finish
        assert found.cache.stored == (finish == "stop")
        assert talker.closed == (finish == "budget")
        assert found.usage.output == (FIRST_OUTPUT if finish == "budget" else WORDS * pieces)
        assert found.citations
        use = spent(path.path.admission, bo.tenant_id, bo.user_id)
        assert use == Spent(1, 0, found.usage.input + found.usage.output, 0)
        if finish == "budget":
            with pytest.raises(LimitExceeded) as refused:
                path.ask(bo, ASKED, cache="bypass")
            assert (refused.value.scope, refused.value.bound) == ("user", "output_tokens_per_minute")
            assert path.ask(acme.principal("cy"), ASKED).finish == "budget"
