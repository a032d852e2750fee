"""Bytes to text: byte order marks, UTF-8, declared character sets, and guesses that say that they are guesses."""

from __future__ import annotations

import codecs
import math
import re
from typing import Final, NamedTuple

from charset_normalizer import from_bytes

from indexing.parse.failure import ParseFailure

SAMPLE_BYTES: Final = 64 * 1024
BINARY_SHARE: Final = 0.02
"""A text in which more characters than this share are control characters is taken for binary data."""

_MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
# The WHATWG Encoding Standard reads these labels as the superset that is used in practice.
_LABELS: Final = {
    "ascii": "cp1252",
    "us-ascii": "cp1252",
    "iso-8859-1": "cp1252",
    "latin1": "cp1252",
    "latin-1": "cp1252",
    "windows-1252": "cp1252",
    "iso-8859-9": "cp1254",
    "iso-8859-8-i": "cp1255",
    "iso-8859-8": "cp1255",
    "iso-8859-8-e": "cp1255",
    "iso-8859-11": "cp874",
    "tis-620": "cp874",
    "windows-874": "cp874",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "x-gbk": "gb18030",
    "shift_jis": "cp932",
    "shift-jis": "cp932",
    "x-sjis": "cp932",
    "windows-31j": "cp932",
    "euc-kr": "cp949",
    "ks_c_5601-1987": "cp949",
    "x-mac-roman": "mac_roman",
    "macintosh": "mac_roman",
}
# Letters from the most to the least frequent in Russian, Hebrew, Greek and Arabic texts.
_BY_FREQUENCY: Final = (
    "оеаинтсрвлкмдпуяыьгзбчйхжшюцщэфъё",
    "יהולארתבמשםענכדחקפסןזטגצךףץ",
    "αοιετνσηυρπκμςλίωάόγέδήθχφβύώξζψϊΐϋΰ",
    "اليمنورتبعدهفسقكحةجأشطصخذىزضثإغءئظؤآ",
)
_WEIGHTS: Final = tuple(
    {
        letter: -0.13 * rank - math.log(sum(math.exp(-0.13 * other) for other in range(len(letters))))
        for rank, letter in enumerate(letters)
    }
    for letters in _BY_FREQUENCY
)
"""Logarithms of the letters' shares, which fall by about an eighth from one to the next."""
_RARE = re.compile(r"[|¢¬^]")
_ONE_LINE: Final = 200
"""Bytes."""

_CONTROLS = re.compile(r"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f-\x84\x86-\x9f]")


class Decoded(NamedTuple):
    text: str
    encoding: str
    certain: bool


def decode(data: bytes, declared: str | None = None) -> Decoded:
    """Decode `data`, preferring evidence in the bytes over what was `declared`, and that over a guess.

    Raises `ParseFailure` ("unsupported") for binary data.
    """
    decoded = _marked(data) or _wide(data) or _utf8(data) or _declared(data, declared) or _guessed(data)
    sample = decoded.text[:SAMPLE_BYTES]
    if len(_CONTROLS.findall(sample)) > max(BINARY_SHARE * len(sample), 8):
        raise ParseFailure("unsupported", "is binary data, not text", remedy="check the file's type")
    return decoded


def _marked(data: bytes) -> Decoded | None:
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            return _with(data, encoding, certain=True)
    return None


def _wide(data: bytes) -> Decoded | None:
    """UTF-16 without a mark: in most texts one byte of each pair is zero."""
    sample = data[:4096]
    if len(sample) < 4 or b"\0" not in sample:
        return None
    half = len(sample) // 2
    high, low = sample[0::2].count(0), sample[1::2].count(0)
    if low > 0.3 * half and high < 0.05 * half:
        return _with(data, "utf-16-le", certain=True)
    if high > 0.3 * half and low < 0.05 * half:
        return _with(data, "utf-16-be", certain=True)
    return None


def _utf8(data: bytes) -> Decoded | None:
    if b"\x1b$" in data[:SAMPLE_BYTES]:
        japanese = _strict(data, "iso2022_jp")
        if japanese is not None:
            return Decoded(japanese, "iso2022_jp", True)
    text = _strict(data, "utf-8")
    if text is not None:
        return Decoded(text, "utf-8", True)
    text = data.decode("utf-8", "replace")
    # A long UTF-8 text with a few damaged bytes is still UTF-8; in other encodings nearly every byte fails.
    broken = text.count("\ufffd")
    multibyte = sum(len(run) for run in re.findall(r"[^\x00-\x7f\ufffd]+", text))
    return Decoded(text, "utf-8", False) if multibyte > 10 * broken else None


def _declared(data: bytes, declared: str | None) -> Decoded | None:
    if not declared:
        return None
    label = declared.strip().strip("\"'").lower()
    try:
        encoding = codecs.lookup(_LABELS.get(label, label)).name
    except (LookupError, ValueError):
        return None
    # UTF-8 and UTF-16 were tried on the bytes themselves; whatever else Python calls a codec is no charset.
    if encoding.startswith("utf") or not getattr(codecs.lookup(encoding), "_is_text_encoding", False):
        return None
    text = _strict(data, encoding)
    if text is None:
        return None
    plausible = from_bytes(_sample(data), cp_isolation=[encoding]).best() is not None
    return Decoded(text, encoding, True) if plausible else None


def _guessed(data: bytes) -> Decoded:
    matches = from_bytes(_sample(data))
    best = matches.best()
    if best is None:
        return _with(data, "cp1252", certain=False)
    encoding = best.encoding
    if encoding == "cp037":
        encoding = _ebcdic(data)
    for match in matches:
        # Western European and Central European pages often tie; the former is far more common.
        if match.encoding == "cp1252" and (match.chaos, -match.coherence) <= (best.chaos, -best.coherence):
            encoding = match.encoding
    if not best.coherence and len(data) <= _ONE_LINE:
        encoding = _by_letters(data, [match.encoding for match in matches]) or encoding
    return _with(data, encoding, certain=False)


def _ebcdic(data: bytes) -> str:
    """The two common EBCDIC code pages differ in seven signs; the better one has fewer rare ones."""
    return min(("cp500", "cp037"), key=lambda encoding: len(_RARE.findall(data.decode(encoding))))


def _by_letters(data: bytes, encodings: list[str]) -> str | None:
    """Of one line of text, in one of several alphabets, the reading whose letters are as frequent as in its language.

    Too little for the detector, which looks at pairs of letters and says that all fit.
    """
    scores: dict[str, float] = {}
    for encoding in encodings:
        text = (_strict(data, encoding) or "").lower()
        letters = [letter for letter in text if letter.isalpha()]
        foreign = [letter for letter in letters if letter > "\x7f"]
        for weights in _WEIGHTS:
            if 2 * len(foreign) > len(letters) and all(letter in weights for letter in foreign):
                scores[encoding] = sum(weights[letter] for letter in foreign) / len(foreign)
    return max(scores, key=lambda encoding: scores[encoding]) if scores else None


def _sample(data: bytes) -> bytes:
    sample = data[:SAMPLE_BYTES]
    cut = sample.rfind(b"\n")
    return sample[: cut + 1] if len(data) > SAMPLE_BYTES and cut > SAMPLE_BYTES // 2 else sample


def _with(data: bytes, encoding: str, *, certain: bool) -> Decoded:
    text = _strict(data, encoding)
    if text is not None:
        return Decoded(text, encoding, certain)
    return Decoded(data.decode(encoding, "replace"), encoding, False)


def _strict(data: bytes, encoding: str) -> str | None:
    try:
        return data.decode(encoding)
    except (UnicodeDecodeError, UnicodeError):
        return None
