"""What a check says."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Finding:
    """What is wrong first. `at` is the first bad record, or the first that it can be, with `until` the last that it can
    be, where the export does not tell exactly. `kind` is edited, missing, reordered, forked, truncated, checkpoint or
    untrusted.
    """

    kind: str
    at: int | None
    until: int | None
    reason: str


@dataclass
class Report:
    """What was checked, as far as it went: records `first` to `size - 1`.

    `open` counts intents without an outcome in the export, `agreed` are the sizes of the old checkpoints that were met,
    `unnamed` the files in the folder that no manifest names.
    """

    log: str = ""
    exports: int = 0
    first: int = 0
    size: int = 0
    root: str = ""
    time: str = ""
    pruned: int = 0
    open: int = 0
    agreed: list[int] = field(default_factory=list)
    unnamed: list[str] = field(default_factory=list)
    finding: Finding | None = None


class Bad(Exception):
    """Ends a check with its finding."""

    def __init__(self, kind: str, at: int | None, reason: str, until: int | None = None) -> None:
        super().__init__(reason)
        self.finding = Finding(kind, at, until if until is not None and until != at else None, reason)
