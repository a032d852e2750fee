"""Access rules and manifests: which list a document gets, and what is refused."""

from __future__ import annotations

import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexing.acl_rules import AccessRules, Decision
from indexing.globs import Glob
from tenancy.acl import AccessList
from tenancy.errors import InvalidInput

RULES = """
[default]
allow = ["tenant"]
deny = ["group:contractors"]

[[rule]]
path = "hr/**"
allow = ["group:hr"]
deny = ["user:bo"]

[[rule]]
path = "hr/public/*.pdf"
allow = ["tenant"]

[[rule]]
path = "board/**"
allow = []
"""


def rules(folder: Path, text: str | None = RULES, manifest: str | None = None, name: str = "list.jsonl") -> AccessRules:
    rules_path = manifest_path = None
    if text is not None:
        rules_path = folder / "access.toml"
        rules_path.write_text(text, encoding="utf-8")
    if manifest is not None:
        manifest_path = folder / name
        manifest_path.write_text(manifest, encoding="utf-8")
    return AccessRules(rules_path, manifest_path)


def access(allow: str = "", deny: str = "") -> AccessList:
    return AccessList(frozenset(allow.split()), frozenset(deny.split()))


def test_the_last_matching_rule_decides_alone(tmp_path: Path) -> None:
    decide = rules(tmp_path).decide
    assert decide("hr/pay/2024.pdf") == Decision(access("group:hr", "user:bo"), "access.toml, rule 1")
    # The denial of the first rule is not carried over: a rule says all that holds.
    assert decide("hr/public/holidays.pdf") == Decision(access("tenant"), "access.toml, rule 2")
    assert decide("hr/public/deep/x.pdf").access == access("group:hr", "user:bo")
    assert decide("board/minutes.md") == Decision(access(), "access.toml, rule 3")
    assert decide("news.md") == Decision(access("tenant", "group:contractors"), "access.toml, default")


def test_without_match_and_default_nobody_reads_and_nobody_decided(tmp_path: Path) -> None:
    decide = rules(tmp_path, '[[rule]]\npath = "a/*"\nallow = ["tenant"]').decide
    assert decide("b/x.md") == Decision(access(), None)
    assert decide("A/x.md") == Decision(access(), None)
    assert decide("a/x.md").access == access("tenant")
    assert AccessRules().decide("a/x.md") == Decision(access(), None)


def test_names_are_compared_in_nfc(tmp_path: Path) -> None:
    composed, taken_apart = "größe/é.md", unicodedata.normalize("NFD", "größe/é.md")
    manifest = f'{{"path": "{taken_apart}", "allow": ["user:Zo\u0065\u0308"]}}'
    decide = rules(
        tmp_path, f'[[rule]]\npath = "{unicodedata.normalize("NFD", "größe/*")}"\nallow = []', manifest
    ).decide
    assert decide(composed) == decide(taken_apart)
    assert decide(composed).access == access("user:Zoë")
    assert decide("größe/other.md").by == "access.toml, rule 1"


def test_manifest_lines_override_the_sides_that_they_name(tmp_path: Path) -> None:
    manifest = "\n".join(
        [
            '{"path": "hr/a.md", "title": "A", "allow": ["user:ana"], "metadata": {"year": 2024}}',
            '{"path": "hr/b.md", "allow": ["user:ana"], "deny": []}',
            "",
            '{"path": "hr/c.md", "title": "C"}',
            '{"path": "hr/d.md", "allow": []}',
        ]
    )
    decide = rules(tmp_path, manifest=manifest).decide
    assert decide("hr/a.md") == Decision(access("user:ana", "user:bo"), "list.jsonl, line 1", "A", {"year": 2024})
    assert decide("hr/b.md") == Decision(access("user:ana"), "list.jsonl, line 2")
    assert decide("hr/c.md") == Decision(access("group:hr", "user:bo"), "list.jsonl, line 4", "C")
    assert decide("hr/d.md").access == access("", "user:bo")
    assert decide("hr/e.md").by == "access.toml, rule 1"


def test_a_line_without_access_decides_nothing(tmp_path: Path) -> None:
    decide = rules(tmp_path, None, '{"path": "a.md", "title": "A"}\n{"path": "b.md", "allow": []}').decide
    assert decide("a.md") == Decision(access(), None, "A")
    assert decide("b.md") == Decision(access(), "list.jsonl, line 2")


def test_csv_manifest(tmp_path: Path) -> None:
    manifest = (
        "\ufeffpath,title,allow,deny,metadata.year\r\n"
        'hr/a.md,"Pay, 2024",user:ana; group:legal team,,2024\r\n'
        "\r\n"
        "hr/b.md,,,none,\r\n"
        "hr/c.md,,NONE,\r\n"
    )
    decide = rules(tmp_path, manifest=manifest, name="list.csv").decide
    both = AccessList(frozenset({"user:ana", "group:legal team"}), frozenset({"user:bo"}))
    assert decide("hr/a.md") == Decision(both, "list.csv, line 2", "Pay, 2024", {"year": "2024"})
    assert decide("hr/b.md") == Decision(access("group:hr"), "list.csv, line 4")
    assert decide("hr/c.md").access == access("", "user:bo")


def test_rules_and_lines_that_fit_nothing_are_named(tmp_path: Path) -> None:
    found = rules(tmp_path, manifest='{"path": "hr/a.md"}\n{"path": "hr/typo.md"}')
    assert found.unused(["hr/a.md", "hr/public/b.pdf"]) == ["access.toml, rule 3", "list.jsonl, line 2"]
    assert found.unused(["hr/public/a.pdf", "hr/a.md", "hr/typo.md", "board/x"]) == []
    odd = ["a\nb.txt", "back\\slash.txt", " blank ", "/a/folder"]
    assert found.unused([*odd, "hr/public/a.pdf", "hr/a.md", "hr/typo.md", "board/x"]) == []


@pytest.mark.parametrize(
    ("text", "item", "said"),
    [
        ("[[rule]\n", "access.toml", "line 1"),
        ("[[rules]]\n", "access.toml", "rules"),
        ("rule = 5", "access.toml", "list"),
        ('[rule]\npath = "a"', "access.toml", "list"),
        ('[[rule]]\npath = "a"\nallow = []\n[[rule]]\npath = "b"', "access.toml, rule 2", "allow"),
        ('[[rule]]\npath = "a"\nallow = "tenant"', "access.toml, rule 1", "array"),
        ('[[rule]]\npath = "a"\nallow = []\nalow = []', "access.toml, rule 1", "alow"),
        ('[[rule]]\npath = "a"\nallow = ["everyone"]', "access.toml, rule 1", "everyone"),
        ('[[rule]]\npath = "a"\nallow = []\ndeny = ["user:"]', "access.toml, rule 1", "user name"),
        ('[default]\ndeny = []', "access.toml, default", "allow"),
        *[
            (f"[[rule]]\npath = '{path}'\nallow = []", "access.toml, rule 1", "")
            for path in ("", "/hr/*", "hr/", "../hr", "hr//x", "./hr", r"hr\x", "hr**", "hr/**x", "hr/[a", " hr")
        ],
    ],
)  # fmt: skip
def test_bad_rules_are_refused_with_place_reason_and_remedy(tmp_path: Path, text: str, item: str, said: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        rules(tmp_path, text)
    assert caught.value.item == item
    assert said in caught.value.reason


@pytest.mark.parametrize(
    ("name", "text", "item", "said"),
    [
        ("list.txt", "", "list.txt", "neither"),
        ("list.jsonl", '{"path": "a"}\n{"path": ', "list.jsonl, line 2", "truncated"),
        ("list.jsonl", '{"path": "a", "alow": []}', "list.jsonl, line 1", "alow"),
        ("list.jsonl", '{"allow": []}', "list.jsonl, line 1", "path"),
        ("list.jsonl", '{"path": "/a"}', "list.jsonl, line 1", "relative"),
        ("list.jsonl", '{"path": "a", "allow": ["boss"]}', "list.jsonl, line 1", "boss"),
        ("list.jsonl", '{"path": "a"}\n{"path": "a"}', "list.jsonl, line 2", "line 1"),
        ("list.jsonl", '{"path": "a", "title": "x\\u0000"}', "list.jsonl, line 1", "title"),
        ("list.csv", "", "list.csv", "path"),
        ("list.csv", "title,allow\nx,tenant", "list.csv", "path"),
        ("list.csv", "path,allow,allow\na,,", "list.csv", "allow"),
        ("list.csv", "path,group\na,hr", "list.csv", "group"),
        ("list.csv", "path,allow\na,user:ana,user:bo", "list.csv, line 2", "cells"),
        ("list.csv", "path,allow\n,tenant", "list.csv, line 2", "empty"),
        ("list.csv", 'path,allow\na,"tenant', "list.csv, line 2", "CSV"),
    ],
)
def test_bad_manifests_are_refused(tmp_path: Path, name: str, text: str, item: str, said: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        rules(tmp_path, None, text, name)
    assert caught.value.item == item
    assert said in caught.value.reason


def test_unreadable_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="cannot be read"):
        AccessRules(tmp_path / "absent.toml")
    (tmp_path / "latin.csv").write_bytes("path\ngröße".encode("latin-1"))
    with pytest.raises(InvalidInput, match="UTF-8"):
        AccessRules(manifest=tmp_path / "latin.csv")


@pytest.mark.parametrize(
    ("pattern", "fits", "fails"),
    [
        ("hr/**", ["hr/a", "hr/a/b"], ["hr", "hrx/a", "x/hr/a", "HR/a"]),
        ("**", ["a", "a/b/c"], []),
        ("**/pay.pdf", ["pay.pdf", "a/pay.pdf", "a/b/pay.pdf"], ["a/xpay.pdf", "pay.pdf/x"]),
        ("a/**/z", ["a/z", "a/b/z", "a/b/c/z"], ["a/b", "b/a/z", "a/z/b"]),
        ("*.md", ["a.md", ".md"], ["a/b.md", "a.mdx"]),
        ("a/?.t[xy]t", ["a/b.txt", "a/b.tyt"], ["a/bb.txt", "a/b.tzt"]),
        ("a/[!x]", ["a/b"], ["a/x", "a//"]),
        ("a/[[]1].txt", ["a/[1].txt"], ["a/1.txt"]),
        ("a.b+(c)", ["a.b+(c)"], ["axb+(c)"]),
        ("**/**/**/x", ["x", "a/x"], ["y"]),
    ],
)
def test_globs(pattern: str, fits: list[str], fails: list[str]) -> None:
    glob = Glob(pattern)
    assert [path for path in fits if not glob.matches(path)] == []
    assert [path for path in fails if glob.matches(path)] == []


@given(
    st.lists(st.sampled_from(["**", "*", "a", "b", "a*"]), min_size=1, max_size=6),
    st.lists(st.sampled_from(["a", "b", "ab"]), min_size=1, max_size=6),
)
def test_globs_against_their_definition(pattern: list[str], path: list[str]) -> None:
    def matches(parts: list[str], names: list[str]) -> bool:
        if not parts:
            return not names
        if parts[0] == "**":
            return (
                bool(names)
                if len(parts) == 1
                else any(matches(parts[1:], names[skip:]) for skip in range(len(names) + 1))
            )
        fits = bool(names) and (parts[0] == "*" or parts[0] == names[0] or (parts[0] == "a*" and names[0][0] == "a"))
        return fits and matches(parts[1:], names[1:])

    assert Glob("/".join(pattern)).matches("/".join(path)) == matches(pattern, path)


_NARROW = """
[default]
allow = ["tenant"]

[[rule]]
path = "hr/pay*.pdf"
allow = ["group:hr"]
"""
_OTHERS = ["hr /pay.pdf", "hr/pay.pdf ", " hr/pay.pdf", "hr/\\u200bpay.pdf", "\\xadhr/pay.pdf", "h\\u2060r/pay.pdf"]


@pytest.mark.parametrize("name", _OTHERS)
def test_a_rule_that_fits_a_name_only_as_it_is_read_is_not_passed_over(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidInput, match=r"access.toml, rule 1 fits this name as it is read") as found:
        rules(tmp_path, _NARROW).decide(name)
    assert (found.value.item, "rename" in str(found.value.remedy)) == (name, True)
    # A rule behind it that fits the name as it is was meant; and where both say the same, nothing is passed over.
    meant = rules(tmp_path, f'{_NARROW}[[rule]]\npath = "**/*pay.pdf*"\nallow = ["user:bo"]\n')
    assert meant.decide(name).access == access("user:bo")
    same = rules(tmp_path, _NARROW.replace("tenant", "group:hr"))
    assert same.decide(name).access == access("group:hr")


def test_what_is_read_as_no_rule_says_falls_to_what_does_fit(tmp_path: Path) -> None:
    found = rules(tmp_path, _NARROW)
    assert found.decide("hr/pay roll .pdf").access == access("group:hr")
    assert found.decide("it/pay.pdf ").access == access("tenant")
    assert found.decide("hr/pay\\xff.pdf").access == access("group:hr")


def test_a_line_for_a_name_that_reads_the_same_is_not_passed_over(tmp_path: Path) -> None:
    lines = '{"path": "hr/pay.pdf", "allow": []}\n{"path": "it.pdf", "title": "IT"}\n{"path": "c.pdf", "allow": []}\n'
    found = rules(tmp_path, _NARROW, lines + '{"path": "c.pdf ", "allow": ["tenant"], "deny": []}\n')
    with pytest.raises(InvalidInput, match=r"list.jsonl, line 1 fits this name as it is read"):
        found.decide("hr/pay.pdf ")
    # A line that says nothing of access, and one of the name's own.
    assert found.decide("it.pdf ") == found.decide("else.pdf")
    assert found.decide("c.pdf ").access == access("tenant")
    with pytest.raises(InvalidInput, match="line 1"):
        found.decide("hr/pay.pdf ", Decision(access("tenant"), by="nearer"))
