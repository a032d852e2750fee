"""What changes below folders, gathered while somebody is busy with what changed before."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from watchfiles import watch

from indexing.folder_rules import FILE as RULES_FILE
from tenancy.errors import Unavailable

_DEBOUNCE_MS: Final = 400
"""Changes that come together are given together, this much later at most."""
_STEP_MS: Final = 50
_TICK_MS: Final = 200
_START_S: Final = 60.0


class Watched:
    """Watches from when it is made until it is closed. Ask it from one thread."""

    def __init__(self, folders: Sequence[Path]) -> None:
        """Returns when nothing that changes from now on is missed. Raises `Unavailable`."""
        self._folders = [folder.resolve() for folder in folders]
        self._changed: set[Path] = set()
        self._news = threading.Condition()
        self._ready = False
        self._missed = False
        self._error: BaseException | None = None
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ingest-watch", daemon=True)
        self._thread.start()
        with self._news:
            self._news.wait_for(lambda: self._ready or self._error is not None, _START_S)
        self._check()

    def wait(self, seconds: float) -> set[Path]:
        """Where something changed since it was asked last: as soon as there is anything, or none after `seconds`.

        A file of access rules stands for its folder. Raises `Unavailable` where the system reports no more changes.
        """
        with self._news:
            self._news.wait_for(lambda: bool(self._changed) or self._error is not None, seconds)
            changed, self._changed = self._changed, set()
        if not changed:
            self._check()
        return changed

    def close(self) -> None:
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            while not self._stopped.is_set():
                try:
                    self._gather()
                except RuntimeError:
                    # It ends at a name that is no UTF-8. The next one watches before all is looked through.
                    if not self._ready:
                        raise
                    self._missed = True
                    self._stopped.wait(_TICK_MS / 1000)
        except BaseException as error:  # noqa: BLE001 - it ends this thread, and is raised in the one that waits
            with self._news:
                self._error = error
                self._news.notify_all()

    def _gather(self) -> None:
        for changes in watch(
            *self._folders,
            watch_filter=None,
            debounce=_DEBOUNCE_MS,
            step=_STEP_MS,
            stop_event=self._stopped,
            rust_timeout=_TICK_MS,
            yield_on_timeout=True,
            raise_interrupt=False,
        ):
            with self._news:
                # It yields for the first time when all folders are watched.
                self._ready = True
                if self._missed:
                    self._changed |= set(self._folders)
                    self._missed = False
                self._changed |= {place for _, path in changes if (place := self._place(Path(path))) is not None}
                self._news.notify_all()

    def _place(self, path: Path) -> Path | None:
        """What has to be looked at; None for what is hidden."""
        folder = next((folder for folder in self._folders if path.is_relative_to(folder)), None)
        if folder is None:
            return None
        if path.name == RULES_FILE:
            path = path.parent
        return None if any(part.startswith(".") for part in path.relative_to(folder).parts) else path

    def _check(self) -> None:
        if self._error is not None:
            raise Unavailable(
                f"the folders cannot be watched: {self._error}",
                remedy="raise fs.inotify.max_user_watches, or set WATCHFILES_FORCE_POLLING=1",
            ) from self._error
