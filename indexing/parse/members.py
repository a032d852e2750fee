"""ZIP, TAR and compressed files: each member is a child. Nothing is written to a disk, and no link is followed.

Names are labels only: "../" and roots are left out of them. Old archives hold names without their encoding, which is
guessed for all names of a ZIP together; a guess is told with each child.
"""

from __future__ import annotations

import io
import lzma
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Final

from indexing.parse import archive
from indexing.parse.failure import ParseFailure
from indexing.parse.model import UNCERTAIN_ENCODING, Nest, Parsed, ParseLimits, ParseResult, Source
from indexing.parse.names import decode_name, guess_encoding
from indexing.parse.unpacking import Unpacked

_UTF8_FLAG: Final = 0x800
_MAX_TAR_HEADER: Final = 2**20
_TAR_MARK: Final = b"ustar"
_COMPRESSED: Final = (".gz", ".bz2", ".xz", ".gzip", ".bzip2")
_TARRED: Final = {".tgz": ".tar", ".tbz2": ".tar", ".tbz": ".tar", ".txz": ".tar"}
_JUNK: Final = ("__MACOSX/", ".DS_Store", "Thumbs.db")
"""What systems leave in archives without being asked."""


def read_zip(source: Source, limits: ParseLimits) -> list[ParseResult]:
    """Raises `ParseFailure`: corrupt (also where members share their data), too_large, empty."""
    nest = _nest(source)
    entries = [entry for entry in archive.entries(source.data, limits) if not entry.is_dir()]
    _refuse_overlaps(entries)
    raw = [_raw_name(entry) for entry in entries]
    encoding = guess_encoding([name for name in raw if name is not None])
    results: list[ParseResult] = []
    with zipfile.ZipFile(io.BytesIO(source.data)) as opened:
        for entry, name in zip(entries, raw, strict=True):
            shown = entry.filename if name is None else decode_name(name, encoding)
            if _is_junk(shown):
                continue
            guessed = name is not None and not name.isascii() and encoding != "utf-8"
            found = _member(nest, shown, partial(opened.read, entry), _problem(entry), entry.file_size)
            results += [_told(result) for result in found] if guessed else found
    return _some(results)


def read_tar(source: Source, limits: ParseLimits) -> list[ParseResult]:
    """Raises `ParseFailure`: corrupt, too_large, empty."""
    return _tar(io.BytesIO(source.data), _nest(source), limits)


def read_compressed(source: Source, limits: ParseLimits) -> list[ParseResult]:
    """A file in gzip, bzip2 or xz: its one child, or the members where it is a TAR."""
    nest = _nest(source)
    name = _inner_name(source.name)
    start = io.BufferedReader(Unpacked(source.data, limits.max_expanded_bytes), 512).peek(512)
    if start[257:262] == _TAR_MARK or name.lower().endswith(".tar"):
        # Unbuffered: what comes before the place where a file is cut off must be seen.
        return _tar(Unpacked(source.data, limits.max_expanded_bytes), nest, limits)
    data = Unpacked(source.data, limits.max_bytes).readall() or b""
    return nest.read(f"#member/{name}", name, data)


def is_tar(data: bytes) -> bool:
    return data[257:262] == _TAR_MARK


def _tar(stream: io.BytesIO | Unpacked, nest: Nest, limits: ParseLimits) -> list[ParseResult]:
    results: list[ParseResult] = []
    try:
        for entry, opened in _tar_entries(stream, limits):
            raw = entry.name.encode("utf-8", "surrogateescape")
            encoding = guess_encoding([raw])
            name = decode_name(raw, encoding)
            if entry.isdir() or _is_junk(name):
                continue
            problem = None if entry.isreg() else _unsupported("is a link or a device, which is not followed")
            found = _member(nest, name, partial(_tar_data, opened, entry), problem, entry.size)
            results += found if encoding == "utf-8" else [_told(result) for result in found]
    except ParseFailure as failure:
        if failure.status != "corrupt" or not results:
            raise
        results += nest.refuse("#member/rest of the archive", failure)
    except (tarfile.TarError, ValueError, OSError, EOFError, RecursionError, OverflowError, UnicodeError):
        cut = ParseFailure("corrupt", "is damaged or cut off from here on", remedy="fetch or pack it again")
        if not results:
            raise cut from None
        results += nest.refuse("#member/rest of the archive", cut)
    return _some(results)


class _Header(tarfile.TarInfo):
    """A header whose extension is of a bounded size: the library reads it into memory whatever it says."""

    def _proc_member(self, archive: tarfile.TarFile) -> tarfile.TarInfo:
        if self.type in _EXTENSIONS and self.size > _MAX_TAR_HEADER:
            raise tarfile.ReadError("a header is too long")
        return super()._proc_member(archive)  # type: ignore[misc, no-any-return]


_EXTENSIONS: Final = {
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
}


def _tar_entries(
    stream: io.BytesIO | Unpacked, limits: ParseLimits
) -> Iterator[tuple[tarfile.TarInfo, tarfile.TarFile]]:
    with tarfile.open(fileobj=stream, mode="r|", tarinfo=_Header, encoding="utf-8", errors="surrogateescape") as opened:
        for number, entry in enumerate(opened):
            if number >= limits.max_children:
                raise ParseFailure("too_large", f"holds more than {limits.max_children} entries", remedy="split it")
            yield entry, opened
            opened.members.clear()  # type: ignore[attr-defined]  # the library keeps each header


def _tar_data(opened: tarfile.TarFile, entry: tarfile.TarInfo) -> bytes:
    file = opened.extractfile(entry)
    return file.read(entry.size) if file is not None else b""


def _member(
    nest: Nest, name: str, read: Callable[[], bytes], problem: ParseFailure | None, size: int
) -> list[ParseResult]:
    suffix = f"#member/{name}"
    problem = problem or nest.over(size)
    if problem is not None:
        return nest.refuse(suffix, problem)
    try:
        data = read()
    except (zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError, OSError, EOFError, ValueError):
        return nest.refuse(suffix, ParseFailure("corrupt", "is damaged in its archive", remedy="pack it again"))
    except (NotImplementedError, RuntimeError):
        return nest.refuse(suffix, _unsupported("is packed in a way that is not read"))
    return nest.read(suffix, name.replace("\\", "/").rpartition("/")[2], data)


def _problem(entry: zipfile.ZipInfo) -> ParseFailure | None:
    if archive.is_encrypted(entry):
        return ParseFailure("encrypted", "needs a password", remedy="pack it without the password")
    if stat.S_ISLNK(entry.external_attr >> 16):
        return _unsupported("is a link, which is not followed")
    return None


def _refuse_overlaps(entries: list[zipfile.ZipInfo]) -> None:
    """A directory may name the same data many times: 42 KB that unpack to 5 GB (Fifield, WOOT 2019)."""
    end = 0
    for entry in sorted(entries, key=lambda entry: entry.header_offset):
        if entry.header_offset < end:
            raise ParseFailure("corrupt", "has members that share their data", remedy="pack it again")
        end = entry.header_offset + 30 + entry.compress_size


def _raw_name(entry: zipfile.ZipInfo) -> bytes | None:
    """The bytes of a name that the archive does not call UTF-8."""
    if entry.flag_bits & _UTF8_FLAG:
        return None
    try:
        return entry.orig_filename.encode("cp437")
    except UnicodeEncodeError:
        return None  # taken from an extra field in Unicode


def _told(result: ParseResult) -> ParseResult:
    if not isinstance(result, Parsed):
        return result
    return replace(result, warnings=tuple(sorted({*result.warnings, UNCERTAIN_ENCODING})))


def _inner_name(name: str) -> str:
    base = name.replace("\\", "/").rpartition("/")[2]
    lower = base.lower()
    for ending, inner in _TARRED.items():
        if lower.endswith(ending):
            return base[: -len(ending)] + inner
    for ending in _COMPRESSED:
        if lower.endswith(ending) and len(base) > len(ending):
            return base[: -len(ending)]
    return base


def _is_junk(name: str) -> bool:
    return name.startswith(_JUNK[0]) or name.rpartition("/")[2] in _JUNK[1:]


def _nest(source: Source) -> Nest:
    if source.nest is None:
        raise _unsupported("an archive cannot be read here")
    return source.nest


def _some(results: list[ParseResult]) -> list[ParseResult]:
    if not results:
        raise ParseFailure("empty", "holds no files", remedy="remove it, or put files in it")
    return results


def _unsupported(reason: str) -> ParseFailure:
    return ParseFailure("unsupported", reason, remedy="unpack it, and add the file itself")
