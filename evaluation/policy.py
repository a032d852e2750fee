"""What becomes of a tenant after a trial: kept on what it has, or given what was tried, in its own contract.

A contract's word stands above the deployment's. So a tenant that is kept stays as it is when the deployment's settings
change, and one that takes the change has it before they do.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from evaluation.change import Change, Terms, changed_in
from evaluation.gate import Verdict
from evaluation.trial import Present
from tenancy.contract import Contract

Policy = Literal["report", "keep", "apply"]
"""`report` records nothing; `keep` those that must not change; `apply` also gives the others the change."""

Unsure = Literal["keep", "change"]
"""What becomes of a tenant of which the gate cannot tell."""

Decision = Literal["keep", "change"]


def decide(verdict: Verdict, unsure: Unsure = "keep") -> Decision:
    """Only a tenant that is shown not to get worse changes, unless `unsure` says otherwise of the doubtful."""
    if verdict == "cannot tell":
        return unsure
    return "keep" if verdict == "worse" else "change"


def kept(change: Change, contract: Contract, present: Present) -> Contract:
    """`contract` with the present value of everything that `change` would change of it."""
    generation = contract.generation
    if change.generation is not None and generation.pools is None:
        generation = msgspec.structs.replace(generation, pools=list(present.pools))
    return msgspec.structs.replace(
        contract,
        retrieval=_held(change.retrieval, contract.retrieval, present.retrieval),
        chunking=_held(change.chunking, contract.chunking, present.chunking),
        generation=generation,
        model=present.model if change.embedding is not None else contract.model,
    )


def _held(changed: Terms, own: Terms, present: Terms) -> Terms:
    """`own` with the `present` value of everything that is `changed`."""
    names = changed_in(changed)
    return msgspec.structs.replace(own, **{name: getattr(present, name) for name in names}) if names else own
