"""The service does what the oracle says, in random histories; and the oracle, that everything rests on, is right."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

from tests.isolation import mutate, oracle
from tests.isolation.agreement import Tally
from tests.isolation.machine import deployed, drive
from tests.isolation.oracle import TENANT, Company, Document, Given

SEED = 20_261_129


def test_the_service_agrees_with_the_oracle() -> None:
    tally = Tally()
    with deployed() as deployment:
        drive(deployment, tally, runs=5, steps=60, number=SEED)
    print(f"\n{tally}")
    assert tally.steps >= 300
    assert tally.first_difference is None
    assert min(tally.positive_finds, tally.exact_hits, tally.semantic_hits, tally.revocations) >= 10


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_service_agrees_with_the_oracle_for_long() -> None:
    tally = Tally()
    with deployed() as deployment:
        drive(deployment, tally, runs=80, steps=120, number=SEED)
    print(f"\n{tally}")
    assert tally.steps >= 10_000
    assert tally.first_difference is None
    assert tally.positive_finds >= 500
    assert tally.semantic_hits >= 200
    assert tally.revocations >= 200
    assert min(tally.exact_hits, tally.grants) >= 200
    assert min(tally.refusals, tally.restarts) >= 20


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_every_mutation_is_noticed(capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        print()
        # `make mutations` runs all of them.
        assert mutate.missed([], each=16) == []


def test_a_mutation_whose_text_is_gone_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text("value = 1\n", encoding="utf-8")
    missing = mutate.Mutation("other", (("module.py", "value = 2", "value = 3", 1),))
    with pytest.raises(ValueError, match=r"stands 0 and not 1 times in module\.py"):
        mutate.run(tmp_path, missing)


def test_every_mutation_still_fits_the_code() -> None:
    for mutation in mutate.load():
        for file, old, _, times in mutation.edits:
            assert (mutate.ROOT / file).read_text(encoding="utf-8").count(old) == times, (mutation.name, file, old)


def test_the_oracle_knows_nothing_of_the_product() -> None:
    source = Path(str(oracle.__file__)).read_text(encoding="utf-8")
    imported: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            imported.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            imported.add(node.module or ".")
    assert imported <= sys.stdlib_module_names
    assert len(source.splitlines()) <= 105


def _company(**documents: tuple[str, str]) -> Company:
    """Documents by name, each with its allow and deny labels, separated by spaces."""
    company = Company()
    for name, lists in documents.items():
        labels = (frozenset(map(company.label, text.split())) for text in lists)
        company.documents[name] = Document((f"Note on {name}.",), *labels)
    return company


def test_deny_wins_and_no_allow_lets_nobody_read() -> None:
    company = _company(both=("tenant", "user:ana"), nobody=("", ""), all=("tenant", ""))
    assert company.readable(company.label("user:ana")).keys() == {"all"}
    assert company.readable(company.label("user:bo")).keys() == {"both", "all"}


def test_groups_nest_also_in_circles() -> None:
    company = _company(a=("group:blue", ""), b=("group:green", ""))
    red, blue, ana = map(company.label, ("group:red", "group:blue", "user:ana"))
    company.members |= {(red, ana), (blue, red), (red, blue)}
    assert company.readable(ana).keys() == {"a"}
    assert company.held(ana) == {ana, red, blue, TENANT}
    assert company.held(company.label("user:bo")) == {company.label("user:bo"), TENANT}


def test_a_name_used_again_inherits_nothing() -> None:
    company = _company(a=("group:red", ""), b=("user:ana", ""), c=("tenant", ""))
    red, ana = company.label("group:red"), company.label("user:ana")
    company.members.add((red, ana))
    company.delete(red)
    company.members.add((company.label("group:red"), ana))
    assert company.readable(ana).keys() == {"b", "c"}
    company.delete(ana)
    assert not company.readable(ana)
    assert company.readable(company.label("user:ana")).keys() == {"c"}


def test_a_domain_holds_labels_in_use_denying_ones_included() -> None:
    company = _company(a=("tenant", "group:gray"))
    gray, red, ana, bo = map(company.label, ("group:gray", "group:red", "user:ana", "user:bo"))
    company.members |= {(gray, ana), (red, bo)}
    assert company.domain(ana) == {TENANT, gray}
    assert company.domain(bo) == {TENANT}


def test_bm25_counts_readable_rows_only() -> None:
    company = Company()
    bo = company.label("user:bo")
    everybody, nobody = frozenset({TENANT}), frozenset[oracle.Label]()
    company.documents["a"] = Document(("anchor barley",), everybody, nobody)
    company.documents["b"] = Document(("barley copper",), everybody, nobody)
    alone = company.bm25(bo, "anchor")
    company.documents["c"] = Document(("anchor anchor anchor",) * 5, nobody, nobody)
    assert company.bm25(bo, "anchor") == alone
    assert alone == {("a", 0): pytest.approx(0.6931471805599453)}


def test_an_answer_is_repeated_in_its_domain_while_what_it_rests_on_stands() -> None:
    company = _company(a=("tenant", ""), b=("group:red", ""))
    ana, bo, red = map(company.label, ("user:ana", "user:bo", "group:red"))
    asked = (("q",), 8)
    cited = frozenset({("a", company.documents["a"].text)})
    company.given.append(Given(asked, "Q?", company.domain(ana), "A.", cited, True, company.state))
    assert company.must_repeat(bo, asked)
    assert not company.may_repeat(bo, (("another",), 8))
    company.members.add((red, bo))
    assert not company.may_repeat(bo, asked)
    company.state += 1
    assert company.may_repeat(ana, asked)
    assert not company.must_repeat(ana, asked)
    company.documents["a"] = Document(("New.",), frozenset({TENANT}), frozenset())
    assert not company.may_repeat(ana, asked)
