"""Evaluations of tenants by an operator: a run of a set, and a change tried on one tenant after another.

Each tenant's questions and scores stay in its own database and log. What comes back for an overview are names and
figures.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec

from evaluation.change import Change
from evaluation.gate import MARGIN, Verdict
from evaluation.policy import Decision, Policy, Unsure, decide, kept
from evaluation.running import Step, Way, run, with_asker
from evaluation.scores import Scores, figures
from evaluation.sets import Case, question_key
from evaluation.store import Run, save_run
from evaluation.trial import Told, Trial, Tried
from generation import templates
from indexing.catalogue import serving
from service.engines import require_possible
from service.wiring import Services
from tenancy.contract import Contract, check_contract
from tenancy.errors import Conflict, StrongroomError
from tenancy.identity import Principal
from tenancy.names import nfc_name
from tenancy.tenant import TenantHandle


@dataclass(frozen=True, slots=True)
class Terms:
    """How runs are made and judged. `asker` asks what names no asker; `k` is the ranking's depth in documents."""

    asker: str | None = None
    k: int = 10
    margin: float = MARGIN
    policy: Policy = "report"
    unsure: Unsure = "keep"


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One tenant in the overview of a trial: its name and figures, of which `reason` says why there are none.

    `decision` is what the gate comes to, `done` what was recorded for it, `left` what is still to be done by hand.
    """

    tenant: str
    verdict: Verdict | Literal["not tried"]
    questions: int = 0
    before: float | None = None
    after: float | None = None
    difference: float | None = None
    lower: float | None = None
    upper: float | None = None
    lost: int = 0
    gained: int = 0
    decision: Decision = "keep"
    done: str | None = None
    left: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Evaluated:
    """A kept run, with the scores of its questions in the set's order."""

    run: Run
    scores: tuple[Scores, ...]


async def evaluate(
    services: Services, name: str, set_name: str, cases: Sequence[Case], terms: Terms, step: Step
) -> Evaluated:
    """Run a set on one tenant and keep the scores. Raises what `evaluation.running.run` raises."""
    control = services.control
    principal = control.authenticator.operator(name)
    # Before the first question is asked, and paid for.
    set_name = nfc_name(set_name, "set")
    trail = control.trail.open(principal, action="eval.run", request_id=secrets.token_hex(16))
    async with trail:
        asked = with_asker(cases, terms.asker)
        tenant = control.tenants.open(principal)
        trail.note(detail={"questions": len(asked)})
        await trail.intent()
        scores = await run(Way(services.path, k=terms.k), _askers(services, name), asked, step)
        kept_run = _keep(tenant, set_name, "", dict(zip(_keys(tenant, asked), scores, strict=True)), terms.k)
        trail.note(detail={"run": kept_run.id})
    return Evaluated(kept_run, tuple(scores))


async def try_on(
    services: Services,
    name: str,
    cases: Sequence[Case] | None,
    change: Change,
    terms: Terms,
    told: Told,
    lacking: str = "it has no questions",
) -> Row:
    """Try `change` on one tenant, and do with it what the policy says. What stands in the way is in the row; `lacking`
    where there are no cases.
    """
    control = services.control
    trial = Trial(services.path, _askers(services, name), change, terms.k, terms.margin, services.pipeline.chunking)
    row = Row(tenant=name, verdict="not tried", reason=lacking)
    try:
        principal = control.authenticator.operator(name)
        async with control.trail.open(principal, action="eval.shadow", request_id=secrets.token_hex(16)) as trail:
            tenant = control.tenants.open(principal)
            trail.note(detail={"change": change.digest, "changes": " ".join(change.parts), "policy": terms.policy})
            await trail.intent()
            if cases is not None:
                row = await _tried(trial, tenant, principal, cases, terms, told)
            if terms.policy != "report":
                row = _settled(services, tenant, principal, trial, row, terms.policy)
            trail.note(
                detail={"verdict": row.verdict, "decision": row.decision, "done": row.done, "questions": row.questions}
            )
    except StrongroomError as error:
        return msgspec.structs.replace(row, verdict="not tried", reason=told_of(error))
    return row


def told_of(error: StrongroomError) -> str:
    """Reason and remedy in a row."""
    return f"{error.reason} ({error.remedy})" if error.remedy else error.reason


async def _tried(
    trial: Trial, tenant: TenantHandle, principal: Principal, cases: Sequence[Case], terms: Terms, told: Told
) -> Row:
    begun = tenant.contract
    try:
        found = await trial.on(tenant, with_asker(cases, terms.asker), told)
        if trial.path.tenants.open(principal).contract != begun:
            raise Conflict("its contract was changed meanwhile", item=tenant.name, remedy="begin again")
    except StrongroomError as error:
        # The policy holds for this tenant all the same: it was not shown that it does not get worse.
        return Row(tenant=tenant.name, verdict="not tried", reason=told_of(error))
    _keep(tenant, "shadow", "", found.before, terms.k)
    _keep(tenant, "shadow", trial.change.digest, found.after, terms.k)
    return _row(tenant, found, terms)


def _row(tenant: TenantHandle, found: Tried, terms: Terms) -> Row:
    gate = found.gate
    return Row(
        tenant=tenant.name,
        verdict=gate.verdict,
        questions=gate.pairs,
        before=gate.before,
        after=gate.after,
        difference=gate.difference,
        lower=gate.lower,
        upper=gate.upper,
        lost=gate.lost,
        gained=gate.gained,
        decision=decide(gate.verdict, terms.unsure),
    )


def _settled(
    services: Services, tenant: TenantHandle, principal: Principal, trial: Trial, row: Row, policy: Policy
) -> Row:
    """Record what was decided in the tenant's contract and templates. Raises `InvalidInput`, `Unavailable`."""
    change, keeps = trial.change, row.decision == "keep"
    if not keeps and policy != "apply":
        return row
    present = trial.present(tenant, principal)

    def amended(contract: Contract) -> Contract:
        other = kept(change, contract, present) if keeps else change.over(contract)
        require_possible(services.control.settings, tenant.name, check_contract(other.stored()))
        return other

    if change.template is not None:
        text = present.template if keeps else change.template.system or ""
        with tenant.writing() as view:
            templates.add(view, change.template.name, text, time.time())
    services.control.tenants.set_contract(tenant.name, amended)
    left = None if keeps else _left(tenant, change)
    return msgspec.structs.replace(row, done="kept as it is" if keeps else "changed", left=left)


def _left(tenant: TenantHandle, change: Change) -> str | None:
    """What no contract does: documents are moved, or come in again."""
    steps = []
    if change.embedding is not None:
        with tenant.reading() as view:
            found = serving(view)
        engine = "faiss" if found is None else found.engine
        steps.append(f"strongroom tenant move {tenant.name} --engine {engine} --model {change.embedding.model}")
    if change.cuts:
        steps.append("ingest its documents again")
    return "; ".join(steps) or None


def _keep(tenant: TenantHandle, set_name: str, change: str, scores: Mapping[bytes, Scores], k: int) -> Run:
    with tenant.writing() as view:
        return save_run(view, set_name, change, scores, figures(list(scores.values()), k), time.time())


def _keys(tenant: TenantHandle, cases: Sequence[Case]) -> list[bytes]:
    return [question_key(tenant, case) for case in cases]


def _askers(services: Services, tenant: str) -> Callable[[str], Principal]:
    """The principal of a user of `tenant`, at the console: it reads what the user may read."""
    return lambda name: services.control.authenticator.operator(tenant, name)
