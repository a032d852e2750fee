"""Who may use a server, or a pool of them, by what has been shown about the memory that requests share there."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from generation.proof import NotIsolated, Proof

Prover = Callable[[float, Any], Awaitable[Proof]]
"""Tests one replica until a deadline, with an adapter or with None: `generation.selftest.prove`."""

_LEVEL: Final = {True: logging.WARNING, False: logging.ERROR}

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Isolation:
    """Of one replica: `refused` until a test finds otherwise; where it is `waived` it serves all the same.

    Without a `prover` nothing is tested, and nothing refused.
    """

    prover: Prover | None = None
    waived: bool = False
    proof: Proof | None = None
    refused: NotIsolated | None = None

    @property
    def permits(self) -> bool:
        return self.refused is None or self.waived

    def require(self) -> None:
        """Raises `NotIsolated`."""
        if self.refused is not None and not self.waived:
            raise self.refused.again()

    async def show(self, name: str, deadline: float, adapter: object = None) -> None:
        """Test the replica, with `adapter` that one's namespace. Raises `NotIsolated`, and `Unavailable` where the
        server does not answer.
        """
        if self.prover is None:
            return
        proof = await self.prover(deadline, adapter)
        if adapter is None or proof.verdict != "apart":
            self.proof = proof
        if proof.verdict == "apart":
            self.refused = self.refused if adapter else None
            return
        self.refused = proof.refusal(name)
        outcome = "serves, since its isolation is waived" if self.waived else "is not used"
        _log.log(_LEVEL[self.waived], "a replica %s (%s): %s", outcome, name, self.refused.reason)
        self.require()


class Company:
    """The tenants of a pool whose servers take no salt: one, since nothing would part the prompts of two.

    `several`: the deployment has more than one, and the pool is dedicated to none.
    """

    def __init__(self, pool: str) -> None:
        self.several = False
        self._pool = pool
        self._first: str | None = None

    @property
    def refusal(self) -> NotIsolated | None:
        return self._alone() if self.several else None

    def require_alone(self, tenant: str | None) -> None:
        """Raises `NotIsolated` for a second tenant of this process."""
        self._first = self._first or tenant
        if self._first != tenant:
            raise self._alone()

    def _alone(self) -> NotIsolated:
        return NotIsolated(
            "the pool's servers take no KV salt, and several tenants would share their memory",
            item=self._pool,
            remedy='let the pool serve one tenant (dedicated_to), use SGLang, or accept it: kv_isolation = "waived"',
        )


def refusal_of(replicas: Sequence[Isolation]) -> NotIsolated | None:
    """Why none of `replicas` serves; None where one does, or where there is none."""
    refused = [one.refused for one in replicas if not one.permits]
    return refused[0] if refused and len(refused) == len(replicas) else None
