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
