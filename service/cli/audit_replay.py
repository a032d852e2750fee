"""`strongroom audit replay`: would the hits of the past be served under today's rules?"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from service.cli.console import DEFAULT, Common, Tenant, audited, blocking, clean, print_json, show_table

if TYPE_CHECKING:
    from audit.trail import Trail

_COLUMNS = ["seq", "ts", "user", "kind", "entry", "decision", "why"]
_ASKED = ["question", "cached"]


def replay(
    *,
    tenant: Tenant,
    since: str | None = None,
    until: str | None = None,
    user: Annotated[str | None, Parameter(name=["--user", "-u"], help="Hits of this user alone.")] = None,
    questions: Annotated[
        bool, Parameter(negative=(), help="Show what was asked and what it was answered for; recorded in the audit.")
    ] = False,
    common: Common = DEFAULT,
) -> None:
    """Decide the past hits of a tenant again, and list those that would be refused now, each with the reason.

    The questions are read from the audit log and put before today's guards, score, verifier and standing; the documents
    that the served answer rests on are looked up as they are now, with what the asker may read now. What cannot be
    decided since a text was erased or a record is missing is listed as `open`. Nothing is served or changed.

    Parameters
    ----------
    since: str
        First moment (ISO 8601).
    until: str
        Moment after the last one.
    """
    from service.inspection import moment
    from service.replay import replay as replayed
    from service.settings import load_settings
    from service.wiring import build

    begin = None if since is None else moment(since, "since")
    end = None if until is None else moment(until, "until")
    services = build(load_settings(common.config))
    try:
        principal = services.control.authenticator.operator(tenant)

        def work(trail: Trail) -> dict[str, Any]:
            trail.note(detail={"questions": questions})
            with _progress() as progress:
                found = replayed(
                    services.path,
                    services.control,
                    principal,
                    since=begin,
                    until=end,
                    user=user,
                    questions=questions,
                    progress=progress,
                )
            trail.note(
                detail={
                    "hits": found["hits"],
                    "refused": found["refused"],
                    "open": found["open"],
                    "as_of": found["as_of"]["size"],
                    "rules": found["rules"]["guards"],
                    "score": found["rules"]["score"],
                }
            )
            return found

        found = audited(services.control, principal, "audit.replay", work)
    finally:
        blocking(services.aclose())
    if common.as_json:
        print_json({"tenant": tenant, "since": since, "until": until} | found)
        return
    _show(common, found, questions=questions)


def _show(common: Common, found: dict[str, Any], *, questions: bool) -> None:
    rows = [row | {"why": _why(row), "ts": f"{row['ts'][:19]}Z"} for row in found["rows"]]
    if rows:
        show_table(common, rows, [*_COLUMNS, *(_ASKED if questions else [])])
    print(
        f"{found['hits']} hits: {found['served_again']} would be served again, {found['refused']} refused now, "
        f"{found['open']} open; {found['withheld_then']} more did not leave then"
    )
    for title, counts in (("refused by", found["refused_by"]), ("not to be had", found["missing"])):
        if counts:
            print(f"{title}: " + clean(", ".join(f"{name} {count}" for name, count in counts.items())))
    if found["pruned"]:
        print(f"{found['pruned']} records of this time were pruned: which of them were hits is not known")
    rules = found["rules"]
    verifier = rules["verifier"] or "no verifier"
    print(f"rules: {rules['guards']}, {rules['score']}, {verifier}; as of {found['as_of']['size']} records")


def _why(row: dict[str, Any]) -> str:
    """What refuses, where something does; else what is missing."""
    wanted = "refuse" if row["decision"] == "refused" else "unknown"
    return "; ".join(f"{found['rung']}: {found['reason']}" for found in row["findings"] if found["verdict"] == wanted)


@contextmanager
def _progress() -> Iterator[Callable[[int], None]]:
    """A count on a terminal: a verifier takes its time."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console

    done = 0
    with Console(stderr=True).status("deciding again") as status:

        def more(count: int) -> None:
            nonlocal done
            done += count
            status.update(f"deciding again: {done} hits")

        yield more
