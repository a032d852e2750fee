"""HTML: text in reading order, what is dropped, what is flagged, and bounds on hostile markup."""

from __future__ import annotations

import time

import pytest

from indexing.parse import Parsed, ParseFailure, ParseLimits, parse
from indexing.parse import html as html_module


def html(markup: str | bytes) -> Parsed:
    (parsed,) = parse("a.html", markup if isinstance(markup, bytes) else markup.encode())
    assert isinstance(parsed, Parsed)
    return parsed


@pytest.mark.parametrize(
    ("markup", "text"),
    [
        ("<p>one<p>two", "one\n\ntwo"),
        ("<p>one <b>bold</b> <i>italic</i>\n  text</p>", "one bold italic text"),
        ("a<b>b</b>c", "abc"),
        ("<h1>Head</h1><p>text</p><h3>Sub <em>head</em></h3>more", "# Head\n\ntext\n\n### Sub head\n\nmore"),
        ("<h2></h2><p>text", "text"),
        ("<ul><li>one<li><p>two</p></ul>after", "- one\n- two\n\nafter"),
        ("one<br>two<div>three</div>four", "one\ntwo\nthree\nfour"),
        ("<table><tr><th>A<th>B<tr><td>1<td>2</table>", "A | B\n1 | 2"),
        ("<table><tr><td><p>A</p></td><td><p>B</p></td></tr><tr><td>1<td></table>", "A | B\n1 |"),
        ("<table><tr><td><p>A</p><p>more</p><td>B</table>", "A\n\nmore | B"),
        ("<pre>a  b\n  c</pre>d", "a  b\n  c\n\nd"),
        ("a &amp; b &lt;c&gt; &eacute;", "a & b <c> é"),
        ("<title>T</title><style>p{}</style><script>x()</script><p>text<!-- c --><template>t</template>", "text"),
        ("<noscript><p>please enable</p></noscript>text", "please enable\n\ntext"),
        ('<img src="http://example.org/x.png" alt="a picture"><iframe src="http://example.org"></iframe>text', "text"),
    ],
)
def test_text_in_reading_order(markup: str, text: str) -> None:
    assert html(markup).text.rstrip(" ") == text


def test_title() -> None:
    assert html("<title> A \n title </title><p>text").title == "A title"
    assert html("<p>text").title is None


@pytest.mark.parametrize(
    "markup",
    [
        "<p hidden>ignore</p>",
        '<p style="DISPLAY : none">ignore</p>',
        '<div style="visibility:hidden"><p>ignore</p></div>',
        '<font style="font-size:0px">ignore</font>',
        '<span style="opacity: 0.0">ignore</span>',
        '<div style="position:absolute; left:-9999px">ignore</div>',
    ],
)
def test_hidden_text_is_kept_and_flagged(markup: str) -> None:
    parsed = html(f"<p>shown</p>{markup}")
    assert "ignore" in parsed.text
    assert parsed.warnings == ("hidden_text",)


@pytest.mark.parametrize(
    "markup", ['<p style="opacity:0.5; font-size:10px">shown</p>', "<p hidden> </p>shown", "<p>display:none</p>"]
)
def test_what_is_visible_is_not_flagged(markup: str) -> None:
    assert html(markup).warnings == ()


def test_declared_charset_against_reality() -> None:
    russian = "<p>Все люди рождаются свободными и равными в своем достоинстве и правах.</p>"
    declared = '<meta http-equiv=Content-Type content="text/html; charset={}">'
    fits = html((declared.format("windows-1251") + russian).encode("cp1251"))
    assert (fits.text, fits.warnings) == (russian[3:-4], ())
    lies = html((declared.format("utf-8") + russian).encode("cp1251"))
    assert (lies.text, lies.warnings) == (russian[3:-4], ("uncertain_encoding",))
    really_utf8 = html((declared.format("windows-1251") + russian).encode())
    assert (really_utf8.text, really_utf8.warnings) == (russian[3:-4], ())


def test_formatting_that_never_closes_is_linear() -> None:
    started = time.process_time()
    parsed = html("".join(f"<b id={number}><p>" for number in range(5000)) + "text")
    assert parsed.text == "text"
    assert time.process_time() - started < 5


def test_a_large_page_is_parsed_elsewhere_to_the_same_text(monkeypatch: pytest.MonkeyPatch) -> None:
    markup = "<title>T</title>" + "<p>one <b>two</b></p>" * 50 + "<p hidden>three</p>"
    here = html(markup)
    monkeypatch.setattr(html_module, "MAX_MARKUP", 10)
    assert html(markup) == here


def test_a_page_that_takes_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(html_module, "MAX_MARKUP", 10)
    with pytest.raises(ParseFailure, match="takes more than") as caught:
        parse("a.html", b"<div>" * 50, limits=ParseLimits(seconds=0.001))
    assert caught.value.status == "too_large"


def blocks(parsed: Parsed) -> list[tuple[str, str]]:
    return [(block.kind.value, parsed.text[block.start : block.end]) for block in parsed.blocks]


def test_structure_is_blocks() -> None:
    parsed = html("<h2>Head</h2><p>text</p><ul><li>one<ul><li>inner</ul><li>two</ul><pre>a\n  b</pre>")
    assert blocks(parsed) == [
        ("heading", "## Head"),
        ("paragraph", "text"),
        ("list", "- one\n  - inner\n- two"),
        ("code", "a\n  b"),
    ]
    assert parsed.blocks[0].level == 2


def test_a_row_of_a_data_table_is_one_line_under_its_header() -> None:
    parsed = html(
        "<table><caption>Staff</caption><tr><th>Name<th>Note</tr><tr><td><p>Ana</p><p>Lee</p><td><ul><li>a<li>b</ul></tr>"
        "<tr><td><td>c</table>after"
    )
    assert blocks(parsed) == [
        ("paragraph", "Staff"),
        ("table", "Name | Note\nAna Lee | a b\n| c"),
        ("paragraph", "after"),
    ]
    assert [block.header for block in parsed.blocks] == [None, "Name | Note", None]


def test_spanning_cells_keep_the_columns() -> None:
    parsed = html(
        "<table><tr><td>A<td>B<td>C<tr><td rowspan=2>1<td>2<td>3<tr><td>4<td>5<tr><td colspan=2>6<td>7</table>"
    )
    assert parsed.text == "A | B | C\n1 | 2 | 3\n| 4 | 5\n6 | | 7"


@pytest.mark.parametrize(
    "table",
    [
        "<table><tr><td><p>one</p><p>two</p></table>",
        "<table><tr><td><h2>one</h2><td>two<tr><td>a<td>b</table>",
        "<table><tr><td><table><tr><td>one<td>two<tr><td>a<td>b</table><td>x<tr><td>y<td>z</table>",
        f"<table><tr><td>one<td>two<tr><td>{'long ' * 500}<td>b</table>",
    ],
)
def test_a_table_that_lays_out_a_page_is_no_data(table: str) -> None:
    assert html(table).blocks[-1].kind.value != "table"


def test_a_hidden_span_is_a_block_of_its_own() -> None:
    parsed = html("<p>shown <span style='display:none'>ignore</span> too</p>")
    assert [(text, block.hidden) for (_, text), block in zip(blocks(parsed), parsed.blocks, strict=True)] == [
        ("shown", False),
        ("ignore", True),
        ("too", False),
    ]


def test_tables_in_tables_are_looked_at_once() -> None:
    started = time.process_time()
    html("<table><tr><td>" * 3000 + "text")
    html("<table><tr><td>a<td>b<tr><td>c<td>d</table>" * 2000)
    assert time.process_time() - started < 5
