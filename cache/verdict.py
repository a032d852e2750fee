"""What one rung of the ladder found."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Verdict:
    """`reason` is a short code such as `amount differs`; it never quotes a text, so it may be logged.

    `value` is the number that decided, where there was one (a probability, a similarity). `near` are the codes of
    what almost refused; the score weighs them.
    """

    name: str
    passed: bool
    reason: str
    value: float | None = None
    near: tuple[str, ...] = ()


def passed(name: str, *, value: float | None = None, near: tuple[str, ...] = ()) -> Verdict:
    return Verdict(name, True, "", value, near)


def veto(name: str, reason: str, *, value: float | None = None) -> Verdict:
    return Verdict(name, False, reason, value)
