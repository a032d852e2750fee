"""Break each guard of isolation in a copy of the repository, and see the oracle notice.

    python -m tests.isolation.mutate [NAME...]

Each file in `mutations/` is one mutation, or a list of them: texts that must stand in the named files (once, or
`times` times), and what takes their place. `visible = false` marks one that another layer makes good, so that the
oracle rightly sees no leak; then the named product tests must fail instead. First the copy as it is must pass.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
MUTATIONS = Path(__file__).parent / "mutations"
RUNS, STEPS, SEED = 25, 100, 1
PARALLEL = 2
TIMEOUT_S = 900


@dataclass(frozen=True)
class Mutation:
    """`edits` are (file, old text, new text, how often). `tests` must fail where the oracle cannot see anything."""

    name: str
    edits: tuple[tuple[str, str, str, int], ...]
    visible: bool = True
    tests: tuple[str, ...] = ()


@dataclass(frozen=True)
class Result:
    """`step` is None where a product test, and not the oracle, noticed."""

    name: str
    noticed: bool
    what: str
    step: int | None
    seconds: float


CONTROL = Mutation("nothing changed", ())


def load() -> list[Mutation]:
    found = []
    for path in sorted(MUTATIONS.glob("*.toml")):
        read = tomllib.loads(path.read_text(encoding="utf-8"))
        for values in read.get("mutation", [read]):
            edits = tuple((edit["file"], edit["old"], edit["new"], edit.get("times", 1)) for edit in values["edit"])
            found.append(Mutation(values["name"], edits, values.get("visible", True), tuple(values.get("tests", ()))))
    return found


def run(base: Path, mutation: Mutation) -> Result:
    """Apply `mutation` to a copy of `base` and run the oracle there, or the product tests that it names."""
    with tempfile.TemporaryDirectory(prefix="mutation-", dir=base.parent) as folder:
        copy = Path(folder, "copy")
        shutil.copytree(base, copy)
        for file, old, new, times in mutation.edits:
            _replace(copy / file, old, new, times, mutation.name)
        if mutation.visible:
            command = ["-m", "tests.isolation.once", "--runs", str(RUNS), "--steps", str(STEPS), "--seed", str(SEED)]
            report = json.loads(_python(copy, command).stdout.strip().rpartition("\n")[2])
            failure = report["failure"]
            step, what = failure or (None, report["tally"].replace("\n", ", "))
            # Anything but a difference means that the mutated code does not even run, which shows nothing.
            noticed = what.startswith("Difference: ")
            return Result(mutation.name, noticed, what.removeprefix("Difference: "), step, report["seconds"])
        done = _python(copy, ["-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *mutation.tests])
        return Result(mutation.name, done.returncode == 1, f"product test {_first_failure(done.stdout)}", None, 0.0)


def missed(names: Sequence[str], *, each: int = 1) -> list[str]:
    """What nothing notices, by name. Of mutations that only product tests can notice, `each` takes one in so many."""
    mutations = [mutation for mutation in load() if not names or any(name in mutation.name for name in names)]
    unseen = [mutation.name for mutation in mutations if not mutation.visible]
    mutations = [one for one in mutations if one.visible or unseen.index(one.name) % each == 0]
    with tempfile.TemporaryDirectory(prefix="strongroom-mutations-") as folder:
        base = Path(folder, "base")
        _copy(base)
        control = run(base, CONTROL)
        print(f"nothing changed: {control.what}; {control.seconds} s", flush=True)
        if control.step is not None:
            return [CONTROL.name]
        with ThreadPoolExecutor(PARALLEL) as pool:
            results = list(pool.map(lambda mutation: run(base, mutation), mutations))
    for line in table(results):
        print(line)
    unnoticed = [result.name for result in results if not result.noticed]
    print(f"{len(results) - len(unnoticed)} of {len(results)} mutations noticed")
    for name in unnoticed:
        print(f"MISSED: {name}")
    return unnoticed


def table(results: Sequence[Result]) -> list[str]:
    rows = [("mutation", "step", "what was noticed")]
    rows += [
        (
            result.name,
            "-" if result.step is None else str(result.step),
            ("" if result.noticed else "NOT: ") + result.what,
        )
        for result in results
    ]
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    return [f"{name:<{widths[0]}}  {step:>{widths[1]}}  {what[:150]}" for name, step, what in rows]


def _copy(target: Path) -> None:
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout
    for name in filter(None, listed.split("\0")):
        source = ROOT / name
        if source.is_file() and source.suffix in {".py", ".toml", ".md", ".txt", ".json", ".lua", ".gz", ""}:
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target / name)


def _replace(file: Path, old: str, new: str, times: int, mutation: str) -> None:
    text = file.read_text(encoding="utf-8")
    if text.count(old) != times:
        found = text.count(old)
        raise ValueError(f"mutation {mutation!r}: its text stands {found} and not {times} times in {file.name}:\n{old}")
    file.write_text(text.replace(old, new), encoding="utf-8")


def _python(copy: Path, arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
    environment: dict[str, Any] = {**os.environ, "PYTHONPATH": str(copy), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        # Servers that other tests wait for come first.
        ["nice", "-n", "10", sys.executable, "-W", "ignore", *arguments],
        cwd=copy, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
    )  # fmt: skip
    if not done.stdout.strip():
        raise RuntimeError(f"no report:\n{done.stderr[-2000:]}")
    return done


def _first_failure(output: str) -> str:
    failed = [line for line in output.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return failed[0].partition(" - ")[0] if failed else output.strip().rpartition("\n")[2]


if __name__ == "__main__":
    sys.exit(1 if missed(sys.argv[1:]) else 0)
