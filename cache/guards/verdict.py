"""What one guard found about a question and a cached one."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Verdict:
    """`reason` is a short code such as `amount differs`; it never quotes either text, so it may be logged."""

    name: str
    passed: bool
    reason: str


def passed(name: str) -> Verdict:
    return Verdict(name, True, "")


def veto(name: str, reason: str) -> Verdict:
    return Verdict(name, False, reason)
