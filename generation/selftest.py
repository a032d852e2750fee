"""Does the server at the end of the configured path keep KV salts apart? Shown with requests like any other.

One long random prompt is sent under three fresh salts, under each of them twice: the first time nothing of it may be
in the engine's memory, the second time most of it must. Three, since behind an address may be a balancer before two
engines: of two requests each may have met its own, of three two meet the same.

Where the server runs a LoRA adapter, the prompt that the memory holds under a salt must be unknown there to the model
with the adapter, whose KV values are others.
"""

from __future__ import annotations

import secrets
from contextlib import aclosing
from typing import Final

from generation.generator import Finish, Usage
from generation.prompt import Message, Prompt
from generation.proof import Probe, Proof
from generation.replica import Adapter, Replica, Request
from tenancy.errors import Unavailable

INSTRUCTION: Final = "This is a self-test of the server's memory. Answer with one word."
"""The beginning of every prompt of a self-test."""

_ITEM: Final = "self-test"
"""In errors, which an asker may read, in the place of a server's address."""

_WORDS: Final = 160
_SALTS: Final = ("A", "B", "C")
_TRIES: Final = 3


async def prove(replica: Replica, deadline: float, adapter: Adapter | None = None) -> Proof:
    """Test `replica`, with `adapter` (which is loaded there) its namespace alone.

    `deadline` is an instant of `time.monotonic()`. A busy engine may have evicted the prompt before it came again, so
    that a result that shows nothing is tried again. Raises `Unavailable` where the server does not answer.
    """
    proof = Proof(())
    for _ in range(_TRIES):
        proof = Proof(tuple(await _tested(_Run(replica, deadline), adapter)))
        if proof.verdict != "inconclusive":
            break
    return proof


class _Run:
    """One prompt and what became of it."""

    def __init__(self, replica: Replica, deadline: float) -> None:
        self._replica = replica
        self._deadline = deadline
        self._prompt = _prompt()
        self.adapted = replica.endpoint.adapter is not None
        self.probes: list[Probe] = []

    async def twice(self, name: str, salt: str, *, adapter: Adapter | None = None, base: bool = False) -> None:
        for again in (False, True):
            usage = await self._ask(salt, adapter, base)
            self.probes.append(Probe(f"{name} again" if again else name, usage.input, usage.cached_input, again))

    async def _ask(self, salt: str, adapter: Adapter | None, base: bool) -> Usage:
        request = Request(
            prompt=self._prompt,
            salt=salt,
            request_id=_ITEM,
            max_tokens=1,
            deadline=self._deadline,
            adapter=adapter,
            base=base,
        )
        finish: Finish | None = None
        async with aclosing(self._replica.generate(request, self._replica.attempt(probe=True))) as pieces:
            async for piece in pieces:
                finish = piece if isinstance(piece, Finish) else finish
        if finish is None or finish.reason == "error":
            raise Unavailable("the self-test was cut", item=_ITEM)
        return finish.usage


async def _tested(run: _Run, adapter: Adapter | None) -> list[Probe]:
    salts = {name: secrets.token_hex(32) for name in _SALTS}
    if adapter is not None:
        await run.twice("salt A", salts["A"])
        await run.twice("salt A with the adapter", salts["A"], adapter=adapter)
        return run.probes
    for name, salt in salts.items():
        await run.twice(f"salt {name}", salt)
    if run.adapted:
        await run.twice("salt A without the adapter", salts["A"], base=True)
    return run.probes


def _prompt() -> Prompt:
    """Nobody has sent it before."""
    words = " ".join(secrets.token_hex(3) for _ in range(_WORDS))
    messages = (Message("system", INSTRUCTION), Message("user", words))
    return Prompt(messages, "selftest", "selftest", INSTRUCTION, ())
