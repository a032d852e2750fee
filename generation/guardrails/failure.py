"""What a rail raises: a verdict, or that it could not reach one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from generation.output import Withheld
from tenancy.errors import Forbidden, StrongroomError


class BlockedTopic(Forbidden):
    """The question is about something that this tenant's contract does not have answered; `item` is the topic."""

    code = "blocked-topic"


class BlockedAnswer(Withheld):
    """The answer went into such a topic."""

    code = "blocked-answer"


class UncitedAnswer(Withheld):
    """An answer that has to cite something, and does not."""


class RailFailed(StrongroomError):
    """A rail broke: nothing passes it. `item` is its name."""

    code = "rail-failed"


@contextmanager
def failing_closed(rail: str) -> Iterator[None]:
    """Whatever breaks inside refuses."""
    try:
        yield
    except StrongroomError:
        raise
    except Exception as error:
        raise RailFailed("a guard rail could not decide, so nothing passes", item=rail, remedy="try again") from error
