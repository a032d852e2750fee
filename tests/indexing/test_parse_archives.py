"""Archives: members as children, names in old encodings, and what archives do to those who unpack them."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import random
import struct
import tarfile
import time
import tracemalloc
import zipfile
import zlib
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indexing.parse import Parsed, ParseFailure, ParseLimits, ParseResult, parse
from indexing.parse.names import guess_encoding
from indexing.parse.nesting import safe_path
from tests.indexing.parse_files import archive, docx, paragraph

ACL_LINE = b'{"id": "p1", "text": "row", "allow": ["tenant"]}\n'


def texts(results: list[ParseResult]) -> dict[str, str]:
    return {result.suffix: result.text if isinstance(result, Parsed) else result.status for result in results}


def tar(*members: tuple[str, bytes], mode: str = "w", **changes: object) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode, format=tarfile.GNU_FORMAT) as opened:  # type: ignore[call-overload]
        for name, data in members:
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            for key, value in changes.items():
                setattr(entry, key, value)
            opened.addfile(entry, io.BytesIO(data))
    return buffer.getvalue()


FILES = (("a.txt", b"one"), ("d/b.csv", b"x,y\n1,2\n"), ("d/c.jsonl", ACL_LINE), ("e.bin", bytes(range(256))))
WANTED = {
    "#member/a.txt": "one",
    "#member/d/b.csv": "x | y\n1 | 2",
    "#member/d/c.jsonl#p1": "row",
    "#member/e.bin": "unsupported",
}


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a.zip", archive(dict(FILES))),
        ("a", archive(dict(FILES))),
        ("a.tar", tar(*FILES)),
        ("a.tar.gz", tar(*FILES, mode="w:gz")),
        ("a.tgz", tar(*FILES, mode="w:gz")),
        ("a.tar.bz2", tar(*FILES, mode="w:bz2")),
        ("a.txz", tar(*FILES, mode="w:xz")),
    ],
)
def test_each_member_is_a_child_under_the_access_list_of_the_archive(name: str, data: bytes) -> None:
    results = parse(name, data)
    assert texts(results) == WANTED
    assert all(result.allow is None and result.deny is None for result in results if isinstance(result, Parsed))
    assert [result.item for result in results if isinstance(result, ParseFailure)] == [f"{name}#member/e.bin"]


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_a_compressed_file_holds_one_child(pack: object) -> None:
    data = pack(b"the text\n")  # type: ignore[operator]
    assert texts(parse("a.txt.gz", data)) == {"#member/a.txt": "the text\n"}
    assert texts(parse("a.gz", data + data)) == {"#member/a": "the text\nthe text\n"}  # two streams are one file


def test_a_document_that_is_an_archive_inside_is_not_taken_apart() -> None:
    assert [result.suffix for result in parse("a.zip", docx(paragraph("hello")))] == [""]


def test_names_lead_nowhere_and_are_unlike() -> None:
    names = ("../../etc/passwd", "/etc/passwd", "C:\\x\\..\\y.txt", "a/./b.txt", "a//b.txt")
    found = texts(parse("a.tar", tar(*((name, b"x") for name in names))))
    assert list(found) == [
        "#member/etc/passwd",
        "#member/etc/passwd~2",
        "#member/x/y.txt",
        "#member/a/b.txt",
        "#member/a/b.txt~2",
    ]
    assert safe_path("../..") == "unnamed"
    assert safe_path("a\x00\u202eb\ud800") == "a__b?"
    assert len(safe_path("long/" * 1000)) == 400


def test_links_and_devices_are_named_and_not_followed() -> None:
    for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE):
        (result,) = parse("a.tar", tar(("passwd", b""), type=kind, linkname="/etc/passwd"))
        assert isinstance(result, ParseFailure)
        assert result.status == "unsupported"
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as opened:
        entry = zipfile.ZipInfo("passwd")
        entry.external_attr = 0o120777 << 16
        opened.writestr(entry, "/etc/passwd")
        opened.writestr("a.txt", "one")
    assert texts(parse("a.zip", buffer.getvalue())) == {"#member/passwd": "unsupported", "#member/a.txt": "one"}


def old_zip(*names: bytes, data: bytes = b"x") -> bytes:
    """A ZIP whose names are bytes in an encoding that it does not name."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as opened:
        for number, name in enumerate(names):
            opened.writestr("%" * (len(name) - 1) + chr(65 + number), data)
    raw = buffer.getvalue()
    for number, name in enumerate(names):
        raw = raw.replace(b"%" * (len(name) - 1) + bytes([65 + number]), name)
    return raw


@pytest.mark.parametrize(
    ("name", "encoding"),
    [
        ("审计资料/合同.txt", "gbk"),
        ("請求書 最終版.txt", "cp932"),
        ("カタログ.txt", "cp932"),
        ("會議紀錄.txt", "big5"),
        ("보고서 최종.txt", "cp949"),
        ("Отчёт за год.txt", "cp866"),
        ("Größe.txt", "cp437"),
        ("Übersicht.txt", "cp1252"),
        ("résumé.txt", "utf-8"),
    ],
)
def test_names_in_old_encodings_are_decoded_and_a_guess_is_told(name: str, encoding: str) -> None:
    (result,) = parse("a.zip", old_zip(name.encode(encoding)))
    assert isinstance(result, Parsed)
    assert result.suffix == f"#member/{name}"
    assert result.warnings == (() if encoding == "utf-8" else ("uncertain_encoding",))
    (result,) = parse("a.tar", tar((name.encode(encoding).decode("utf-8", "surrogateescape"), b"x"), mode="w"))
    assert result.suffix == f"#member/{name}"


def test_names_of_one_archive_are_guessed_together() -> None:
    names = [text.encode("cp932") for text in ("表.txt", "ソフトウェア.txt", "議事録.txt")]
    assert guess_encoding(names) == "cp932"
    assert guess_encoding([b"plain.txt"]) == "utf-8"


def test_a_member_with_a_password_or_damage_costs_no_other() -> None:
    data = bytearray(archive({"a.txt": b"one", "b.txt": b"two " * 100, "c.txt": b"three"}))
    locked = bytes(data).replace(b"PK\x03\x04\x14\x00\x00", b"PK\x03\x04\x14\x00\x01", 1)
    locked = locked.replace(b"PK\x01\x02\x14\x03\x14\x00\x00", b"PK\x01\x02\x14\x03\x14\x00\x01", 1)
    assert texts(parse("a.zip", locked)) == {
        "#member/a.txt": "encrypted",
        "#member/b.txt": "two " * 100,
        "#member/c.txt": "three",
    }
    position = data.index(b"b.txt") + 8
    data[position : position + 4] = b"\xff\xff\xff\xff"
    assert texts(parse("a.zip", bytes(data)))["#member/b.txt"] == "corrupt"
    assert texts(parse("a.zip", bytes(data)))["#member/c.txt"] == "three"


def test_a_tar_that_is_cut_off_gives_what_is_there_and_says_so() -> None:
    data = tar(("a.txt", b"one"), ("b.txt", b"x" * 5000))
    assert texts(parse("a.tar", data[:2000])) == {
        "#member/a.txt": "one",
        "#member/b.txt": "corrupt",
        "#member/rest of the archive": "corrupt",
    }
    packed = gzip.compress(tar(("a.txt", b"one"), ("b.bin", random.Random(1).randbytes(5000))))
    assert texts(parse("a.tar.gz", packed[: len(packed) // 2]))["#member/rest of the archive"] == "corrupt"


def test_what_unpacks_to_too_much_is_refused_before_it_takes_memory() -> None:
    zeros = bytes(8_000_000)
    limits = ParseLimits(max_expanded_bytes=2_000_000, max_bytes=500_000)
    bombs = {
        "a.zip": archive({"bomb.txt": zeros, "small.txt": b"one"}),
        "a.tar.gz": gzip.compress(tar(("small.txt", b"one"), ("bomb.txt", zeros))),
        "a.gz": gzip.compress(zeros),
        "a.bz2": bz2.compress(zeros),
    }
    for name, bomb in bombs.items():
        tracemalloc.start()
        try:
            found = texts(parse(name, bomb, limits=limits))
        except ParseFailure as failure:
            found = {"": failure.status}
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert "too_large" in found.values(), name
        assert peak < 6_000_000, (name, peak)
        assert found.get("#member/small.txt", "one") == "one"


def test_a_dictionary_of_a_gigabyte_is_not_made() -> None:
    packed = bytearray(lzma.compress(b"x" * 100))
    assert texts(parse("a.xz", bytes(packed))) == {"#member/a": "x" * 100}
    at = packed.index(b"\x21\x01") + 2  # the properties of LZMA2: one byte, the size of its dictionary
    packed[at] = 36
    end = 12 + (packed[12] + 1) * 4
    packed[end - 4 : end] = struct.pack("<I", zlib.crc32(packed[12 : end - 4]))
    with pytest.raises(ParseFailure) as caught:
        parse("a.xz", bytes(packed))
    assert caught.value.status == "corrupt"


def test_members_that_share_their_data_are_refused() -> None:
    kernel = zlib.compress(bytes(100_000), 9)[2:-4]
    crc, size = zlib.crc32(bytes(100_000)), 100_000
    local = struct.pack("<4s5H3I2H", b"PK\x03\x04", 20, 0, 8, 0, 0x21, crc, len(kernel), size, 1, 0) + b"a" + kernel
    entry = b"".join(
        struct.pack("<4s6H3I5H2I", b"PK\x01\x02", 20, 20, 0, 8, 0, 0x21, crc, len(kernel), size, 1, 0, 0, 0, 0, 0, 0)
        + bytes([65 + number])
        for number in range(20)
    )
    end = struct.pack("<4s4H2IH", b"PK\x05\x06", 0, 0, 20, 20, len(entry), len(local), 0)
    with pytest.raises(ParseFailure) as caught:
        parse("a.zip", local + entry + end)
    assert caught.value.status == "corrupt"
    assert "share" in caught.value.reason


def test_archives_in_archives_end_at_depth_size_and_number() -> None:
    data = b"the core"
    for _ in range(12):
        data = archive({"in.zip" if data != b"the core" else "core.txt": data})
    (deep,) = parse("a.zip", data)
    assert isinstance(deep, ParseFailure)
    assert (deep.status, deep.suffix.count("#")) == ("too_large", 9)
    assert texts(parse("a.zip", archive({"in.zip": archive({"a.txt": "one"})}))) == {
        "#member/in.zip#member/a.txt": "one"
    }
    # Each level holds sixteen of the level below: 42.zip in small.
    layer = archive({"0.txt": bytes(10_000)})
    for _ in range(3):
        layer = archive({f"{number}.zip": layer for number in range(16)})
    started = time.process_time()
    try:
        found = set(texts(parse("a.zip", layer, limits=ParseLimits(max_children=200))).values())
    except ParseFailure as failure:
        found = {failure.status}
    assert found == {"too_large"}
    assert time.process_time() - started < 5


def test_an_archive_that_holds_more_files_than_the_limit_is_refused() -> None:
    data = archive({f"{number}.txt": "x" for number in range(11)})
    assert len(parse("a.zip", data, limits=ParseLimits(max_children=11))) == 11
    with pytest.raises(ParseFailure) as caught:
        parse("a.zip", data, limits=ParseLimits(max_children=10))
    assert caught.value.status == "too_large"
    rows = archive({"a.jsonl": ACL_LINE + b'{"id": "p2", "text": "x"}\n', "b.txt": "x"})
    with pytest.raises(ParseFailure):
        parse("a.zip", rows, limits=ParseLimits(max_children=2))


def test_a_tar_header_of_gigabytes_is_not_read() -> None:
    entry = tarfile.TarInfo("pax")
    entry.type, entry.size = tarfile.XHDTYPE, 2**31
    with pytest.raises(ParseFailure) as caught:
        parse("a.tar", entry.tobuf(tarfile.USTAR_FORMAT) + bytes(5000))
    assert caught.value.status == "corrupt"


SOUND = {
    "a.zip": archive(dict(FILES)),
    "a.tar": tar(*FILES),
    "a.tar.gz": tar(*FILES, mode="w:gz"),
    "a.txt.xz": lzma.compress(b"the text"),
}


@settings(deadline=None, max_examples=50)
@given(st.sampled_from(sorted(SOUND)), st.integers(0, 4000), st.integers(0, 255))
def test_a_damaged_archive_gives_results_or_a_failure(name: str, position: int, value: int) -> None:
    data = bytearray(SOUND[name])
    data[position % len(data)] = value
    with suppress(ParseFailure):
        assert parse(name, bytes(data))
