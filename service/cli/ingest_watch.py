"""`strongroom ingest`: one pass over the folders, and with --watch others as files are saved."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from service.cli.console import Common, blocking, clean, note
from service.cli.ingest_report import Tally, reporting
from service.problems import DONE, FAILED
from tenancy.errors import InvalidInput, LimitExceeded, StrongroomError, Unavailable

if TYPE_CHECKING:
    from indexing.outcome import Outcome
    from service.cli.ingest_access import Deciding, Sources
    from service.cli.ingest_loading import Loading

_TICK_S: Final = 1.0
"""How often files of rules are looked at, which may lie anywhere."""
_WHOLE_S: Final = 3600.0
"""All is looked at again this often: a system may lose reports of changes where there are very many."""
_PAUSES_S: Final = (1.0, 2.0, 5.0, 15.0, 60.0)
"""Waits before what failed for the service's sake is tried again."""


def one_pass(
    loading: Loading,
    access: Deciding,
    common: Common,
    tally: Tally | None = None,
    only: Collection[Path] | None = None,
) -> Tally:
    """Load all files, or what lies at or below the places `only`, and show what became of each."""
    tally = tally or Tally()

    with reporting(loading.paths, common, bar=only is None) as report:

        def done(outcome: Outcome) -> None:
            tally.add(outcome)
            access.done(outcome)
            report(outcome)

        blocking(loading.load(access.decide, done, only))
    if only is None:
        for where in access.unused():
            note(f"{where} fits no document")
    if access.unread:
        note(f"nobody reads {access.unread} of the new documents: no --allow, rule, manifest or folder names them")
        access.unread = 0
    return tally


def follow(loading: Loading, sources: Sources, access: Deciding, tenant: str, common: Common) -> int:
    """Load all, and then whatever changes, until Ctrl-C. Raises what no waiting mends: a tenant that is suspended."""
    from indexing.watching import Watched

    for path in loading.paths:
        if not path.is_dir():
            raise InvalidInput("only folders can be watched", item=str(path), remedy="name the folder of the file")
    watched = Watched(loading.paths)
    tally = Tally()
    following = _Following(loading, sources, access, common, tally)
    try:
        with _ended_by_signals():
            following.begin()
            if not common.as_json:
                tally.show(tenant, common)
            note("watching; Ctrl-C ends it")
            while True:
                following.step(watched.wait(_TICK_S))
    except _Ended:
        pass
    finally:
        watched.close()
    tally.show(tenant, common)
    return FAILED if tally.failures else DONE


class _Ended(Exception):
    """Somebody ended the watching while nothing was under way."""


class _Following:
    """What is still to be looked at, and under which rules."""

    def __init__(self, loading: Loading, sources: Sources, access: Deciding, common: Common, tally: Tally) -> None:
        self._loading, self._sources, self._access = loading, sources, access
        self._common, self._tally = common, tally
        self._links = access.links
        self._stamp = sources.stamp()
        self._due: set[Path] = set()
        self._whole_at = 0.0
        self._again_at = 0.0
        self._tries = 0

    def begin(self) -> None:
        """The first pass, which raises what ends it: what is wrong at the start is told at once."""
        one_pass(self._loading, self._access, self._common, self._tally)
        self._whole_at = time.monotonic() + _WHOLE_S

    def step(self, changed: Collection[Path]) -> None:
        """Take note of what changed, and load what is due."""
        self._due |= set(changed)
        self._reread()
        now = time.monotonic()
        whole = now >= self._whole_at
        if now < self._again_at or not (self._due or whole):
            return
        due, self._due = self._due, set()
        # A link stands under the rules of where it leads.
        due |= {link for link, target in self._links.items() if not due.isdisjoint((target, *target.parents))}
        access = self._afresh()
        access.links = self._links
        try:
            one_pass(self._loading, access, self._common, self._tally, None if whole else _outermost(due))
        except (Unavailable, LimitExceeded, InvalidInput) as error:
            self._due |= due
            self._again_at = time.monotonic() + _PAUSES_S[min(self._tries, len(_PAUSES_S) - 1)]
            self._tries += 1
            _say(error)
            return
        self._tries = 0
        if whole:
            self._whole_at = time.monotonic() + _WHOLE_S

    def _reread(self) -> None:
        """New rules hold for all files, at once; rules that cannot be read change nothing."""
        stamp = self._sources.stamp()
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self._access = self._sources.read()
        except InvalidInput as error:
            _say(error)
            note("the rules stay as they were")
            return
        self._whole_at = 0.0

    def _afresh(self) -> Deciding:
        """The same rules, with the files in the folders read anew; what is broken there is told of each file."""
        try:
            return self._sources.read()
        except InvalidInput:
            return self._access


def _outermost(places: set[Path]) -> list[Path]:
    return [place for place in sorted(places) if places.isdisjoint(place.parents)]


def _say(error: StrongroomError) -> None:
    remedy = f" ({error.remedy})" if error.remedy else ""
    print(clean(f"error: {error.item}: {error.reason}{remedy}"), file=sys.stderr, flush=True)


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """SIGTERM ends it as Ctrl-C does."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    except KeyboardInterrupt:
        raise _Ended from None
    finally:
        signal.signal(signal.SIGTERM, before)
