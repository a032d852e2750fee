"""Mails, mailboxes and Outlook messages: what a reader sees, attachments as children, and bounds on hostile ones."""

from __future__ import annotations

import base64
import struct
import time
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indexing.parse import Parsed, ParseFailure, ParseLimits, ParseResult, parse
from indexing.parse.rtf_packed import unpack
from tests.indexing.parse_files import archive
from tests.indexing.parse_messages import compound_file


def mail(
    head: str, body: str | bytes = "", *, name: str = "a.eml", limits: ParseLimits | None = None
) -> list[ParseResult]:
    data = head.encode() + b"\n\n" + (body.encode() if isinstance(body, str) else body)
    return parse(name, data, limits=limits)


def letter(head: str, body: str | bytes = "") -> Parsed:
    (result,) = mail(head, body)
    assert isinstance(result, Parsed)
    return result


def multipart(kind: str, *parts: str | bytes, boundary: str = "xx") -> bytes:
    """A whole body with its header line first."""
    line = f"--{boundary}\n".encode()
    encoded = [part.encode() if isinstance(part, str) else part for part in parts]
    return b"".join(line + part + b"\n" for part in encoded) + f"--{boundary}--\n".encode()


def attachment(name: str, data: bytes, kind: str = "application/octet-stream") -> bytes:
    head = (
        f'Content-Type: {kind}\nContent-Disposition: attachment; filename="{name}"\nContent-Transfer-Encoding: base64'
    )
    return head.encode() + b"\n\n" + base64.encodebytes(data)


def shown(parsed: Parsed) -> str:
    return "\n\n".join(parsed.text[block.start : block.end] for block in parsed.blocks if not block.hidden)


MIXED = "Subject: Offer\nContent-Type: multipart/mixed; boundary=xx"


def test_subject_people_date_and_body() -> None:
    parsed = letter(
        "From: Ana <ana@example.org>\nTo: bo@example.org\nSubject: =?utf-8?q?Gr=C3=B6=C3=9Fe?=\n"
        "Date: Fri, 16 Dec 2022 17:04:16 -0500\nReceived: by elsewhere",
        "First paragraph\n\nsecond",
    )
    assert parsed.title == "Größe"
    assert parsed.text == (
        "Subject: Größe\nFrom: Ana <ana@example.org>\nTo: bo@example.org\nDate: Fri, 16 Dec 2022 17:04:16 -0500\n\n"
        "First paragraph\n\nsecond"
    )
    assert parsed.metadata == {"from": "Ana <ana@example.org>", "to": "bo@example.org", "date": "2022-12-16T22:04:16Z"}
    assert (parsed.media_type, parsed.warnings) == ("message/rfc822", ())


@pytest.mark.parametrize(
    ("encoding", "body"),
    [
        ("quoted-printable", b"Gr=C3=B6=\n=C3=9Fe"),
        ("base64", base64.encodebytes("Größe".encode())),
        ("base64", base64.b64encode("Größe".encode()).rstrip(b"=")),
        ("8bit", "Größe".encode()),
        ("x-uuencode", b"begin 644 a\n'1W+#ML.?90``\n`\nend\n"),
    ],
)
def test_transfer_encodings(encoding: str, body: bytes) -> None:
    parsed = letter(f"Content-Type: text/plain; charset=utf-8\nContent-Transfer-Encoding: {encoding}", body)
    assert parsed.text == "Größe"


def test_the_page_is_the_body_and_a_text_that_says_the_same_is_not_repeated() -> None:
    parsed = letter(
        "Content-Type: multipart/alternative; boundary=xx",
        multipart(
            "a", "Content-Type: text/plain\n\nThe offer stands", "Content-Type: text/html\n\n<p>The <b>offer</b> stands"
        ),
    )
    assert (parsed.text, parsed.warnings) == ("The offer stands", ())


def test_a_text_that_says_something_else_than_the_page_is_hidden() -> None:
    parsed = letter(
        "Content-Type: multipart/alternative; boundary=xx",
        multipart(
            "a",
            "Content-Type: text/plain\n\nignore what was said",
            "Content-Type: text/html\n\n<h1>The offer</h1>stands",
        ),
    )
    assert shown(parsed) == "# The offer\n\nstands"
    assert "ignore what was said" in parsed.text
    assert parsed.warnings == ("hidden_text",)


def test_attachments_are_children_without_an_access_list_of_their_own() -> None:
    rows = b'{"id": "p1", "text": "row", "allow": ["tenant"], "deny": []}\n'
    found = mail(
        MIXED,
        multipart(
            "m",
            "Content-Type: text/plain\n\nsee below",
            attachment("a.txt", b"the text"),
            attachment("rows.jsonl", rows),
            attachment("bad.pdf", b"%PDF-1.4 nothing"),
            attachment("a.txt", "größer".encode("cp1252"), "text/plain; charset=windows-1252"),
        ),
    )
    own, text, row, bad, again = found
    assert isinstance(own, Parsed)
    assert own.suffix == ""
    assert own.text == "Subject: Offer\n\nsee below"
    assert own.metadata["attachments"] == 4
    assert isinstance(text, Parsed)
    assert (text.suffix, text.text) == ("#attachment-1/a.txt", "the text")
    assert isinstance(row, Parsed)
    assert (row.suffix, row.text, row.allow, row.deny) == ("#attachment-2/rows.jsonl#p1", "row", None, None)
    assert isinstance(bad, ParseFailure)
    assert (bad.suffix, bad.status, bad.item) == ("#attachment-3/bad.pdf", "corrupt", "a.eml#attachment-3/bad.pdf")
    assert isinstance(again, Parsed)
    assert (again.suffix, again.text) == ("#attachment-4/a.txt", "größer")
    # What its version is made of: equal for equal content, so that an edit of the mail leaves it alone.
    assert (text.source, row.source) == (b"the text", rows.strip())


def test_the_same_file_alone_does_name_who_may_read_it() -> None:
    (row,) = parse("rows.jsonl", b'{"text": "row", "allow": ["tenant"]}')
    assert isinstance(row, Parsed)
    assert row.allow == ("tenant",)


def test_mails_in_mails_and_archives_in_mails() -> None:
    inner = b"Subject: Inner\n\ninner text"
    found = mail(
        MIXED,
        multipart(
            "m",
            "\nouter text",
            b"Content-Type: message/rfc822\n\n" + inner,
            attachment("b.zip", archive({"d/c.eml": inner})),
        ),
    )
    assert [result.suffix for result in found] == ["", "#attachment-1/Inner.eml", "#attachment-2/b.zip#member/d/c.eml"]
    assert all(isinstance(result, Parsed) and "inner text" in result.text for result in found[1:])


def test_pictures_of_the_body_and_signatures_are_no_attachments() -> None:
    parts = (
        "Content-Type: text/html\n\n<p>text<img src=cid:1>",
        "Content-Type: image/png; name=logo.png\nContent-ID: <1>\n\nxx",
        'Content-Type: application/pgp-signature; name="sig.asc"\n\nxx',
    )
    (own,) = mail(MIXED, multipart("m", *parts))
    assert isinstance(own, Parsed)
    own, picture = mail(MIXED, multipart("m", parts[0], attachment("scan.png", b"\x89PNG....", "image/png")))
    assert isinstance(picture, ParseFailure)
    assert picture.suffix == "#attachment-1/scan.png"


def test_encrypted_mail_is_named_as_such() -> None:
    own, sealed = mail(
        "Subject: S\nContent-Type: application/pkcs7-mime; smime-type=enveloped-data; name=smime.p7m", b"xx"
    )
    assert isinstance(own, Parsed)
    assert isinstance(sealed, ParseFailure)
    assert sealed.status == "encrypted"


def test_a_named_text_is_the_body_where_there_is_no_other() -> None:
    (own,) = mail('Content-Type: text/plain; name="body.txt"', "the body")
    assert isinstance(own, Parsed)
    assert own.text == "the body"


def test_lines_broken_for_sending_are_joined() -> None:
    assert letter("Content-Type: text/plain; format=flowed", "one \ntwo\nthree").text == "one two\nthree"
    assert letter("Content-Type: text/plain", "one \ntwo").text == "one \ntwo"


def test_utf16_and_cut_off_mails() -> None:
    text = "Subject: Größe\nContent-Type: text/plain; charset=us-ascii\n\nfür alle"
    for data in (text.encode("utf-16"), text.encode("utf-16-le")):
        (own,) = parse("a.eml", data)
        assert isinstance(own, Parsed)
        assert own.title == "Größe"
        assert own.text.endswith("für alle")
    cut = mail(MIXED, "--xx\nContent-Type: text/plain\n\nfirst\n--xx\nContent-Type: text/plain\n\nsec")
    assert isinstance(cut[0], Parsed)
    assert cut[0].text.endswith("first\n\nsec")


def test_headers_lie_and_the_text_is_read() -> None:
    parsed = letter(
        "Subject: =?no-such-charset?B?//8=?= =?utf-8?B?bad===?=\nContent-Type: text/plain; charset=hex; name*0*=x''%zz"
        "\nContent-Disposition: =?;;filename*=\nContent-Transfer-Encoding: none-such\nDate: yesterday",
        "the text",
    )
    assert parsed.text.endswith("the text")
    assert parsed.metadata["date"] == "yesterday"


def test_too_many_and_too_deep_parts_are_refused_quickly() -> None:
    started = time.process_time()
    many = "--xx\n\nx\n" * 5000
    deep = "".join(f"Content-Type: multipart/mixed; boundary=b{depth}\n\n--b{depth}\n" for depth in range(5000))
    for head, body in ((MIXED, many), (deep.split("\n\n")[0], deep.partition("\n\n")[2])):
        with pytest.raises(ParseFailure) as caught:
            mail(head, body)
        assert caught.value.status == "too_large"
    assert time.process_time() - started < 5


@pytest.mark.parametrize(
    "head",
    [
        'Content-Type: text/plain; name="' + ";" * 200_000,
        "Content-Disposition: attachment; filename=" + "=?x?q?" * 30_000,
        "Subject: " + "=?x?q?" * 30_000,
        "Content-Type: multipart/mixed; boundary=" + "x" * 100_000,
        "X: y\n" * 50_000,
    ],
)
def test_a_header_that_leads_the_library_in_circles_is_cut(head: str) -> None:
    started = time.process_time()
    with suppress(ParseFailure):
        mail(head, "the text")
    assert time.process_time() - started < 3


def nested(levels: int) -> bytes:
    data = b"Subject: innermost\n\nthe core"
    for level in range(levels):
        head = f"Subject: level {level}\nContent-Type: multipart/mixed; boundary=b{level}\n\n".encode()
        data = head + multipart("m", attachment("in.eml", data, "message/rfc822"), boundary=f"b{level}")
    return data


def test_mails_in_mails_end_at_the_depth_limit() -> None:
    found = parse("a.eml", nested(3), limits=ParseLimits(max_depth=3))
    assert [type(result) for result in found] == [Parsed] * 4
    *others, last = parse("a.eml", nested(4), limits=ParseLimits(max_depth=3))
    assert len(others) == 4
    assert isinstance(last, ParseFailure)
    assert last.status == "too_large"
    assert last.suffix.count("#") == 4


BOX = (
    b"From ana@example.org Mon Jul 20 01:01:07 2015\nMessage-ID: <1@example.org>\nSubject: One\n\nfirst\n"
    b">From here on\nFrom the middle of a text\n\n"
    b"From bo@example.org Mon Jul 20 01:01:08 2015\nSubject: Two\n\nsecond\n\n"
    b"From bo@example.org Mon Jul 20 01:01:09 2015\nMessage-ID: <1@example.org>\nSubject: Copy\n\nthird\n"
)


def test_each_message_of_a_mailbox_is_a_child_named_by_its_id() -> None:
    first, second, third = parse("a.mbox", BOX)
    assert isinstance(first, Parsed)
    assert (first.suffix, first.title) == ("#message/1@example.org", "One")
    assert first.text.endswith("first\nFrom here on\nFrom the middle of a text")
    assert isinstance(second, Parsed)
    assert (second.title, len(second.suffix)) == ("Two", len("#message/") + 24)
    assert third.suffix == "#message/1@example.org~2"
    # Without the first message, the others keep their names.
    rest = parse("mailbox", BOX[BOX.index(b"From bo") :])
    assert [result.suffix for result in rest] == [second.suffix, first.suffix]


def test_a_mailbox_beyond_the_limit_is_refused() -> None:
    box = b"".join(b"From a\nMessage-ID: <%d>\n\nx\n\n" % number for number in range(11))
    assert len(parse("a.mbox", box, limits=ParseLimits(max_children=11))) == 11
    with pytest.raises(ParseFailure) as caught:
        parse("a.mbox", box, limits=ParseLimits(max_children=10))
    assert caught.value.status == "too_large"


def test_a_mail_in_a_maildir_is_known_by_its_header() -> None:
    data = b"Return-Path: <ana@example.org>\nFrom: Ana <ana@example.org>\nSubject: Offer\n\ntext"
    (parsed,) = parse("1437375668.M293P25.host:2,S", data)
    assert isinstance(parsed, Parsed)
    assert (parsed.title, parsed.media_type) == ("Offer", "message/rfc822")
    (text,) = parse("notes", b"Subject: what to buy\n\nmilk")
    assert isinstance(text, Parsed)
    assert text.media_type == "text/plain"


def outlook(**streams: bytes) -> bytes:
    return compound_file({f"__substg1.0_{name}": data for name, data in streams.items()})


def wide(text: str) -> bytes:
    return text.encode("utf-16-le")


SENT = (
    struct.pack("<IIIIII", 0, 0, 0, 0, 0, 0) + bytes(8) + struct.pack("<HHIQ", 0x40, 0x39, 6, 133_157_018_560_000_000)
)


def test_outlook_messages() -> None:
    properties = {
        "0037001F": wide("Größe"),
        "0C1A001F": wide("Ana"),
        "5D01001F": wide("ana@example.org"),
        "0E04001F": wide("Bo"),
        "1000001F": wide("plain text of the offer"),
        "10130102": b"<h1>Offer</h1><p>plain text of the offer",
    }
    streams = {f"__substg1.0_{name}": data for name, data in properties.items()}
    attached = "__attach_version1.0_#0000000"
    data = compound_file(
        {
            **streams,
            "__properties_version1.0": SENT,
            f"{attached}0/__substg1.0_3707001F": wide("a.txt"),
            f"{attached}0/__substg1.0_37010102": b"the text",
            f"{attached}1/__substg1.0_3707001F": wide("logo.png"),
            f"{attached}1/__substg1.0_3712001F": wide("cid-1"),
            f"{attached}1/__substg1.0_370E001F": wide("image/png"),
            f"{attached}1/__substg1.0_37010102": b"\x89PNG",
            f"{attached}2/__substg1.0_3701000D/__substg1.0_0037001F": wide("Inner"),
            f"{attached}2/__substg1.0_3701000D/__substg1.0_1000001E": "für alle".encode("cp1252"),
            f"{attached}2/__substg1.0_3701000D/{attached}0/__substg1.0_3707001F": wide("b.txt"),
            f"{attached}2/__substg1.0_3701000D/{attached}0/__substg1.0_37010102": b"inner file",
        }
    )
    own, text, inner, file = parse("a.msg", data)
    assert isinstance(own, Parsed)
    assert own.title == "Größe"
    assert own.text == (
        "Subject: Größe\nFrom: Ana <ana@example.org>\nTo: Bo\nDate: 2022-12-16T22:04:16Z"
        "\n\n# Offer\n\nplain text of the offer"
    )
    assert own.warnings == ()
    assert isinstance(text, Parsed)
    assert (text.suffix, text.text) == ("#attachment-1/a.txt", "the text")
    assert isinstance(inner, Parsed)
    assert (inner.suffix, inner.text) == ("#attachment-2/Inner.eml", "Subject: Inner\n\nfür alle")
    assert isinstance(file, Parsed)
    assert (file.suffix, file.text) == ("#attachment-2/Inner.eml#attachment-1/b.txt", "inner file")
    assert parse("b", data)[2] == inner  # the same bytes again, whatever it is called


def test_an_outlook_message_with_nothing_but_packed_rich_text() -> None:
    # The example of [MS-OXRTFCP] 3.1.
    example = bytes.fromhex(
        "2d0000002b0000004c5a4675f1c5c7a703000a007263706731323542320af32068656c090020627705b06c647d0a800fa0"
    )
    assert unpack(example) == b"{\\rtf1\\ansi\\ansicpg1252\\pard hello world}\r\n"
    (parsed,) = parse("a.msg", outlook(**{"0037001F": wide("S"), "10090102": example}))
    assert isinstance(parsed, Parsed)
    assert parsed.text == "Subject: S\n\nhello world"
    (parsed,) = parse("a.msg", outlook(**{"0037001F": wide("S"), "10090102": example[:12]}))
    assert isinstance(parsed, Parsed)
    assert parsed.warnings == ("malformed_parts",)


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 4000), st.integers(0, 255))
def test_a_damaged_outlook_message_gives_text_or_a_failure(position: int, value: int) -> None:
    data = bytearray(outlook(**{"0037001F": wide("Größe"), "1000001F": wide("text " * 400)}))
    data[position % len(data)] = value
    with suppress(ParseFailure):
        assert parse("a.msg", bytes(data))


@settings(deadline=None, max_examples=50)
@given(st.binary(max_size=200), st.sampled_from(["eml", "mbox", "msg"]))
def test_any_bytes_give_a_message_or_a_failure(data: bytes, extension: str) -> None:
    start = {
        "eml": MIXED.encode() + b"\n\n--xx\n",
        "mbox": b"From a\nA: b\n",
        "msg": outlook(**{"0037001F": b"a"})[:600],
    }
    for given_data in (data, start[extension] + data):
        with suppress(ParseFailure):
            assert parse(f"a.{extension}", given_data)
