"""Statements in nearly the same words: another name in a name's place, and two names in each other's."""

from __future__ import annotations

import pytest

from cache.certificate.wording import names_differ
from cache.guards import read

SAID = "In 1998 the museum in the old harbour was opened by Margaret Rhys of Cardiff."


def differ(fresh: str, stored: str) -> bool:
    one, other = (names_differ(read(first), read(second)) for first, second in ((fresh, stored), (stored, fresh)))
    assert one is other
    return one


@pytest.mark.parametrize(
    ("fresh", "stored"),
    [
        (SAID, "In 1998 the museum in the old harbour was opened by Edward Rhys of Cardiff."),
        (SAID, "In 1998 the museum in the old harbour was opened by Margaret Rhys of Swansea."),
        ("Fellow lineman Mario Addison added 6 sacks", "Fellow lineman Kurt Coleman added 6 sacks"),
        # The other name stands elsewhere in the sentence as well, so that no word is new.
        ("The letters soon reached France, England and Spain.", "The letters soon reached Spain, England and Spain."),
        ("The work was paid for by the US and by Canada.", "The work was paid for by Mexico and by Canada."),
        ("The Miller-Rabin test is fast and small.", "The Solovay-Rabin test is fast and small."),
        ("At the fair Ana trained Bo for two weeks.", "At the fair Bo trained Ana for two weeks."),
        ("The Treaty of Rome came before the Treaty of Nice.", "The Treaty of Nice came before the Treaty of Rome."),
        ("阿韦尔萨(Aversa)由公爵交给诺曼人。", "阿韦尔萨(Melfi)由公爵交给诺曼人。"),
    ],
)
def test_another_name_in_the_place_of_one_is_another_fact(fresh: str, stored: str) -> None:
    assert differ(fresh, stored)


@pytest.mark.parametrize(
    ("fresh", "stored"),
    [
        (SAID, SAID),
        (SAID, "The museum in the old harbour was opened by Margaret Rhys of Cardiff in 1998."),
        (SAID, "In 1998 the museum in the old harbour was opened by Rhys of Cardiff."),
        (SAID, "In 1998 the museum in the old port was opened by Margaret Rhys of Cardiff."),
        ("The case was brought by Mr Costa in Milan.", "The case was brought by Dr Costa in Milan."),
        ("The European Union pays for the roads.", "The EU pays for the roads."),
        ("At the fair Ana and Bo won two prizes.", "At the fair Bo and Ana won two prizes."),
        ("Staff may park behind the house on Mondays.", "Employees may park behind the house on Mondays."),
        ("The house of Margaret is old.", "Margaret's house is old."),
        ("THE FEE IS PAID BY THE BUYER.", "THE FEE IS PAID BY THE SELLER."),
        ("员工可以在周一远程工作。", "职工可以在周一远程工作。"),
        ("", SAID),
    ],
)
def test_other_words_for_the_same_and_moved_phrases_are_not(fresh: str, stored: str) -> None:
    assert not differ(fresh, stored)


def test_statements_in_other_words_and_long_ones_are_left_to_the_guards() -> None:
    assert not differ("Margaret Rhys opened it.", "In Cardiff a museum was opened by the mayor, Edward Lee.")
    long = "and then the house was sold " * 30
    assert not differ(f"It belonged to Margaret, {long}", f"It belonged to Edward, {long}")
