"""`strongroom eval` over whole deployments in this process: sets, runs, a change tried on three tenants, starters."""

from __future__ import annotations

import json
import os
import stat
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from evaluation.trial import Present, Trial, Tried
from service.cli import run
from tenancy.contract import Contract
from tests.service.conftest import _MEMORY

OTHER = "hashing:64"
SUBJECTS = ("parking", "travel", "pension", "overtime", "uniform")
STRICT = "[retrieval]\nthreshold = 0.9\n"


TENANTS = ("acme", "globex", "initech")


class Console:
    """Commands in this process over one data directory of three tenants with the same documents."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, *words: str) -> tuple[int, Any, str]:
        out, err = StringIO(), StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            code = run((*words, "--json"))
        lines = out.getvalue().strip().splitlines()
        return code, json.loads(lines[-1]) if lines else None, err.getvalue()

    def done(self, *words: str) -> Any:
        code, out, err = self(*words)
        assert code == 0, err
        return out

    def file(self, name: str, text: str) -> str:
        path = self.folder / name
        path.write_text(text, encoding="utf-8")
        return str(path)

    def set(self, name: str, lines: Sequence[dict[str, Any]]) -> str:
        return self.file(name, "".join(json.dumps(line) + "\n" for line in lines))


@pytest.fixture(scope="module")
def console() -> Iterator[Console]:
    with (
        tempfile.TemporaryDirectory(dir=_MEMORY, prefix="strongroom-test-") as name,
        pytest.MonkeyPatch.context() as patch,
    ):
        for variable in [variable for variable in os.environ if variable.startswith("STRONGROOM_")]:
            patch.delenv(variable)
        made = Console(Path(name))
        settings = (
            f'data_dir = "{name}/data"\nmaster_key_file = "{name}/master.key"\n'
            f'[embedding]\nmodel = "hashing:256"\nalso = ["{OTHER}"]\n'
        )
        patch.setenv("STRONGROOM_CONFIG", made.file("settings.toml", settings))
        made.done("doctor", "--create-master-key")
        (made.folder / "docs").mkdir()
        for number, subject in enumerate(SUBJECTS):
            text = f"The allowance for {subject} is {number + 31} units in each calendar year for every employee."
            (made.folder / "docs" / f"{subject}.md").write_text(text)
        for tenant in TENANTS:
            made.done("tenant", "create", tenant)
            for user in ("ana", "bo"):
                made.done("key", "create", "--tenant", tenant, "--user", user)
            made.done("ingest", "--tenant", tenant, str(made.folder / "docs"), "--allow", "user:ana")
        yield made


@pytest.fixture
def acme(console: Console) -> Iterator[Console]:
    """The tenants as they were made: no contract, no set."""
    yield console
    for tenant in TENANTS:
        console.done("tenant", "contract", "set", tenant, "--empty")
    for file in console.folder.glob("*.jsonl"):
        file.unlink()


def plain(subject: str, number: int) -> dict[str, Any]:
    return {
        "question": f"What is the allowance for {subject} in a calendar year?",
        "documents": [f"{subject}.md"],
        "facts": [f"{number + 31} units"],
        "asker": "ana",
    }


def wordy(subject: str, number: int) -> dict[str, Any]:
    """The same in words of which the document has few: weak evidence, and still the right answer."""
    said = f"Somebody mentioned lately the {subject} allowance per employee?"
    return plain(subject, number) | {"question": said}


def test_a_run_has_all_figures_and_is_kept(acme: Console) -> None:
    lines = [plain(subject, number) for number, subject in enumerate(SUBJECTS)]
    lines.append({"question": "Who painted the ceiling of the chapel?", "unanswerable": True, "asker": "ana"})
    found = acme.done("eval", acme.set("set.jsonl", lines), "--tenant", "acme", "--questions")
    assert {found[name] for name in ("ndcg", "recall", "mrr", "citation_precision", "facts", "quality")} == {1}
    assert (found["declined_right"], found["declined_wrong"], found["failed"]) == (1, 0, 0)
    assert 0 < found["p50_s"] <= found["p99_s"]
    assert found["output_tokens"] > 0
    assert [row["line"] for row in found["lines"]] == list(range(1, len(SUBJECTS) + 2))
    kept = acme.done("eval", "list", "--tenant", "acme")[0]
    assert (kept["run"], kept["quality"], kept["change"]) == (found["run"], 1, None)
    assert acme.done("eval", "show", found["run"], "--tenant", "acme")["ndcg"] == 1


def test_bad_lines_are_named_and_the_others_are_asked(acme: Console) -> None:
    good = json.dumps(plain("parking", 0))
    text = "\n".join([
        good, "", "{no json", good, '{"question": "secret words"}', '{"question": 7}',
        '{"question": "x", "documents": ["a"], "colour": "red"}',
    ])  # fmt: skip
    code, found, err = acme("eval", acme.file("set.jsonl", text), "--tenant", "acme")
    assert code == 1
    assert found["questions"] == 1
    assert [line["line"] for line in found["bad_lines"]] == [3, 4, 5, 6, 7]
    assert "line 5: it says neither documents nor facts, nor that it is unanswerable" in err
    assert "secret words" not in err
    code, _, err = acme("eval", acme.file("none.jsonl", "{no json\n"), "--tenant", "acme")
    assert (code, "no line of the set can be used" in err) == (2, True)


def test_an_asker_who_may_not_read_finds_nothing(acme: Console) -> None:
    lines = [
        plain("parking", 0) | {"asker": "bo"},
        {key: value for key, value in plain("parking", 0).items() if key != "asker"},
    ]
    found = acme.done("eval", acme.set("set.jsonl", lines), "--tenant", "acme", "--asker", "ana", "--questions")
    assert [(row["declined"], row["recall"]) for row in found["lines"]] == [(True, 0), (False, 1)]


def test_two_runs_are_compared_by_question(acme: Console) -> None:
    lines = [wordy(subject, number) for number, subject in enumerate(SUBJECTS)]
    file = acme.set("set.jsonl", lines)
    first = acme.done("eval", file, "--tenant", "acme")["run"]
    assert acme("tenant", "contract", "set", "acme", acme.file("contract.toml", STRICT))[0] == 0
    second = acme.done("eval", file, "--tenant", "acme")["run"]
    code, found, _ = acme("eval", "compare", first, second, "--tenant", "acme")
    assert (code, found["verdict"], found["lost"]) == (1, "worse", len(SUBJECTS))
    code, found, _ = acme("eval", "compare", second, first, "--tenant", "acme", "--margin", "0.5")
    assert (code, found["verdict"], found["gained"]) == (0, "not worse", len(SUBJECTS))


@pytest.mark.slow
def test_a_change_is_tried_on_three_tenants_and_the_one_that_gets_worse_is_kept(
    acme: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, asked in zip(TENANTS, (plain, wordy, plain), strict=True):
        lines = [asked(subject, number) for number, subject in enumerate(SUBJECTS)]
        acme.done("eval", "save", acme.set(f"{name}.jsonl", lines), "--tenant", name)
    tried = ("eval", "shadow", "--change", acme.file("change.toml", STRICT), "--margin", "0.6")

    code, rows, _ = acme(*tried)
    assert code == 1
    verdicts = [(row["tenant"], row["verdict"]) for row in rows]
    assert verdicts == [("acme", "not worse"), ("globex", "worse"), ("initech", "not worse")]
    assert rows[1]["lost"] == len(SUBJECTS)
    assert [row["done"] for row in rows] == [None, None, None]
    assert acme.done("tenant", "contract", "show", "globex") == {}

    code, rows, _ = acme(*tried, "--policy", "keep")
    assert [row["done"] for row in rows] == [None, "kept as it is", None]
    monkeypatch.setenv("STRONGROOM_RETRIEVAL__THRESHOLD", "0.9")
    question = wordy("parking", 0)["question"]
    finish = [acme.done("ask", "-t", name, "-u", "ana", question)["finish"] for name in ("acme", "globex")]
    assert finish == ["abstain", "stop"]
    monkeypatch.delenv("STRONGROOM_RETRIEVAL__THRESHOLD")

    code, rows, _ = acme(*tried, "--policy", "apply", "--tenant", "acme")
    assert [row["done"] for row in rows] == ["changed"]
    held = [acme.done("tenant", "contract", "show", name).get("retrieval") for name in TENANTS]
    assert held == [{"threshold": 0.9}, {"threshold": 0.15}, None]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "left"),
    [
        (f'[embedding]\nmodel = "{OTHER}"\n', f"strongroom tenant move acme --engine faiss --model {OTHER}"),
        ("[chunking]\ntarget_chars = 200\noverlap_chars = 0\n", "ingest its documents again"),
        ('[template]\nsystem = "Answer in one word."\n', None),
        ('[generation]\npools = ["default"]\n', None),
    ],
)
def test_each_kind_of_change_is_tried_and_says_what_is_left_to_do(acme: Console, change: str, left: str | None) -> None:
    lines = [plain(subject, number) for number, subject in enumerate(SUBJECTS)]
    acme.set("acme.jsonl", lines)
    words = ("--sets", str(acme.folder), "--margin", "0.9", "--policy", "apply", "--tenant", "acme")
    ((row,), err) = acme("eval", "shadow", "--change", acme.file("change.toml", change), *words)[1:]
    assert (row["verdict"], row["done"], row["left"]) == ("not worse", "changed", left), (row, err)


def test_a_contract_that_changes_beside_its_recording_is_not_overwritten(
    acme: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    present = Trial.present

    def late(self: Any, *words: Any) -> Present:
        found = present(self, *words)
        self.path.tenants.set_contract("acme", Contract(weight=7))
        return found

    monkeypatch.setattr(Trial, "present", late)
    change = acme.file("change.toml", STRICT)
    (row,) = acme("eval", "shadow", "--change", change, "--policy", "keep", "--set", "none", "--tenant", "acme")[1]
    assert row["done"] == "kept as it is"
    assert acme.done("tenant", "contract", "show", "acme") == {"weight": 7, "retrieval": {"threshold": 0.15}}


def test_what_was_tried_under_another_contract_is_not_applied(acme: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [plain(subject, number) for number, subject in enumerate(SUBJECTS)]
    acme.set("acme.jsonl", lines)
    on = Trial.on

    async def beside(self: Any, tenant: Any, cases: Any, told: Any) -> Tried:
        found: Tried = await on(self, tenant, cases, told)
        self.path.tenants.set_contract("acme", Contract(weight=9))
        return found

    monkeypatch.setattr(Trial, "on", beside)
    change = acme.file("change.toml", STRICT)
    words = ("--sets", str(acme.folder), "--margin", "0.9", "--policy", "apply", "--tenant", "acme")
    code, (row,), err = acme("eval", "shadow", "--change", change, *words)
    assert (code, row["verdict"], row["done"]) == (1, "not tried", "kept as it is")
    assert "its contract was changed meanwhile" in err
    assert acme.done("tenant", "contract", "show", "acme") == {"weight": 9, "retrieval": {"threshold": 0.15}}


def test_a_set_that_cannot_be_asked_or_read_is_named_and_its_tenant_kept(acme: Console) -> None:
    change, words = acme.file("change.toml", STRICT), ("--policy", "apply", "--sets", str(acme.folder))
    nameless = {"question": "Who won the cup?", "unanswerable": True}
    acme.set("acme.jsonl", [nameless, plain("parking", 0)])
    (acme.folder / "globex.jsonl").write_bytes(b"\xff\xfe\x00")
    code, rows, err = acme("eval", "shadow", "--change", change, *words, "--tenant", "acme", "--tenant", "globex")
    assert code == 1
    assert [(row["verdict"], row["done"]) for row in rows] == [("not tried", "kept as it is")] * 2
    assert "acme was not tried: 1 of the set's 2 questions name no asker (give --asker" in err
    for tenant in ("acme", "globex"):
        assert acme.done("tenant", "contract", "show", tenant)["retrieval"] == {"threshold": 0.15}


def test_an_expected_document_that_is_not_there_is_told(acme: Console) -> None:
    file = acme.set("astray.jsonl", [plain("parking", 0), plain("travel", 1) | {"documents": ["travle.md"]}])
    code, _, err = acme("eval", "save", file, "--tenant", "initech", "--name", "astray")
    assert (code, err) == (0, "note: line 2: it expects a document that is not there\n")


def test_a_tenant_without_a_set_is_named_and_kept(acme: Console) -> None:
    change = acme.file("change.toml", STRICT)
    words = ("--policy", "apply", "--set", "none", "--tenant", "acme")
    code, (row,), err = acme("eval", "shadow", "--change", change, *words)
    assert (code, row["verdict"], row["done"]) == (1, "not tried", "kept as it is")
    assert "acme was not tried: it has no set" in err
    assert acme.done("tenant", "contract", "show", "acme")["retrieval"] == {"threshold": 0.15}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[retrieval]\n",
        "[retrieval]\nthreshold = 2.0\n",
        "[colour]\nred = 1\n",
        "no toml",
        '[template]\nname = "x"\n',
    ],
)
def test_a_change_that_is_none_is_refused(acme: Console, text: str) -> None:
    code, out, err = acme("eval", "shadow", "--change", acme.file("change.toml", text))
    assert (code, out) == (2, None)
    assert err.startswith("error: ")


def test_a_starter_is_made_of_what_its_asker_may_read_and_can_be_run(acme: Console) -> None:
    file = acme.folder / "starter.jsonl"
    found = acme.done("eval", "generate", str(file), "--tenant", "acme", "--asker", "ana", "--count", "6")
    assert (found["questions"], found["unanswerable"]) == (6, 1)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    figures = acme.done("eval", str(file), "--tenant", "acme")
    assert (figures["failed"], figures["answerable"], figures["unanswerable"]) == (0, 5, 1)
    assert figures["ndcg"] == 1
    code, _, err = acme("eval", "generate", str(acme.folder / "other"), "--tenant", "acme", "--asker", "bo")
    assert (code, "may read no sentence" in err) == (1, True)
    assert not (acme.folder / "other").exists()
    code, _, err = acme("eval", "generate", str(file), "--tenant", "acme", "--asker", "ana")
    assert (code, "the file exists" in err) == (1, True)


def test_the_report_of_drift_is_there_before_any_question(acme: Console) -> None:
    found = acme.done("eval", "drift", "--tenant", "acme")
    assert (found["enough"], found["recent"]["questions"]) == (False, 0)


def test_no_record_of_an_evaluation_holds_a_question(acme: Console) -> None:
    acme.done("eval", "save", acme.set("s.jsonl", [plain("parking", 0)]), "--tenant", "acme")
    acme.done("eval", str(acme.folder / "s.jsonl"), "--tenant", "acme")
    found = acme.done("audit", "query", "--tenant", "acme", "--order", "desc", "--limit", "12")["events"]
    assert {"eval.save", "eval.run", "answer", "retrieve"} <= {event["action"] for event in found}
    said = json.dumps([event for event in found if event["action"].startswith("eval.")])
    assert ("allowance" in said, "parking" in said, "ana" in said) == (False, False, False)
