"""The repository's shape: packages, imports and what must not be swallowed or shadowed."""

from __future__ import annotations

import importlib
import importlib.metadata
import subprocess
import sys
from pathlib import Path

import pytest

from tests.layout.scope_rule import PRODUCT, ROOT

FIXED = ("retrieval", "cache", "indexing", "tests", "configs", "pyproject.toml", "compose.yaml")


@pytest.mark.parametrize("name", FIXED)
def test_the_fixed_top_level_is_there(name: str) -> None:
    assert (ROOT / name).exists()


@pytest.mark.parametrize("package", PRODUCT)
def test_a_generic_package_name_resolves_into_this_repository(package: str) -> None:
    module = importlib.import_module(package)
    assert module.__file__ is not None
    assert Path(module.__file__).resolve().is_relative_to(ROOT)


def test_no_other_distribution_provides_our_package_names() -> None:
    owners = importlib.metadata.packages_distributions()
    strangers = {package: set(owners.get(package, [])) - {"strongroom"} for package in PRODUCT}
    assert {package: owner for package, owner in strangers.items() if owner} == {}


def test_git_ignores_no_source() -> None:
    paths = [f"{package}/probe.py" for package in PRODUCT]
    found = subprocess.run(["git", "check-ignore", *paths], cwd=ROOT, capture_output=True, text=True, check=False)
    if found.returncode == 128:
        pytest.skip("not a git checkout: nothing can be ignored here")
    assert found.stdout == ""


def test_modules_and_functions_stay_short() -> None:
    import ast

    long = []
    for package in PRODUCT:
        for path in (ROOT / package).rglob("*.py"):
            text = path.read_text(encoding="utf-8")
            if text.count("\n") > 400:
                long.append(f"{path.relative_to(ROOT)}: {text.count(chr(10))} lines")
            long += [
                f"{path.relative_to(ROOT)}:{node.lineno} {node.name}: {node.end_lineno - node.lineno + 1} lines"
                for node in ast.walk(ast.parse(text))
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
                and node.end_lineno is not None
                and node.end_lineno - node.lineno + 1 > 70
            ]
    assert long == []


def test_the_import_contracts_hold() -> None:
    linter = Path(sys.executable).parent / "lint-imports"
    found = subprocess.run([linter, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout


def test_the_command_line_starts_without_loading_a_model() -> None:
    code = (
        "import sys, service.cli; sys.exit(sorted({'torch', 'faiss', 'sentence_transformers'} & set(sys.modules)) or 0)"
    )
    found = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
