"""Names of files that came as bytes: old archives and file systems do not say in which encoding."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

_LATIN: Final = frozenset("äöüßàâçéèêëîïôùûñáíóúåøæÄÖÜÉÈÀÇÑÅØÆ")

_FREQUENT: Final = frozenset(
    "的一是不了在人有我他这个们中来上大为和国地到以说时要就出会可也你对生能而子那得于着下自之年过发后作里用道行所然家种事"
    "成方多经么去法学如都同现当没动面起看定天分还进好小部其些主样理心她本前开但因只从想实日军者意无力它与长把机十民第公此"
    "已工使情明性知全三又关点正业外将两高间由问很最重并物手应战向头文体政美相见被利什二等产或新己制身果加西斯月话合回特代"
    "内信表化老给世位次度门任常先海通教儿原东声提立及比员解水名真论处走义各入几口认条平系气题活尔更别打女变四神总何电数安"
    "报告件资料合同书表单案计划项目管理规审检测试档集团邮"
    "이다의는에을를고가한로기지사하은도서시인자대정리일부수아어장과보스제그해상전들원나라조국주여유동"
    "경성구안회무문고용관계약최종사업신청견적내결산공연월간개실업세금명단"
)


def guess_encoding(names: Sequence[bytes]) -> str:
    """The encoding in which all `names` make the most sense: "utf-8" where it fits, else a guess.

    Charset detectors need sentences. A name is short but made of common characters: those of the first level of the
    Chinese and Japanese standards, which hold 99 % of running text, and a wrong encoding mostly gives rare ones.
    """
    joined = b"/".join(name for name in names if not name.isascii())
    if not joined or _decoded(joined, "utf-8") is not None:
        return "utf-8"
    scores = {encoding: _score(joined, encoding, common) for encoding, common in _CANDIDATES.items()}
    return max(scores, key=lambda encoding: scores[encoding])


def decode_name(name: bytes, encoding: str) -> str:
    return name.decode(encoding, "replace")


def _score(data: bytes, encoding: str, is_common: Callable[[str], bool]) -> float:
    text = _decoded(data, encoding)
    if text is None:
        return -1.0
    foreign = [character for character in text if character > "\x7f"]
    share = sum(map(is_common, foreign)) / max(len(foreign), 1)
    # Latin letters stand between letters, others do not.
    torn = sum(
        character > "\x7f" and character not in _LATIN and (_is_letter(before) or _is_letter(after))
        for before, character, after in zip(" " + text, text, text[1:] + " ", strict=False)
    )
    frequent = sum(character in _FREQUENT for character in foreign)
    return share + (0.2 * frequent - 0.5 * torn) / max(len(foreign), 1)


def _is_letter(character: str) -> bool:
    return character.isascii() and character.isalpha()


def _decoded(data: bytes, encoding: str) -> str | None:
    try:
        return data.decode(encoding)
    except UnicodeDecodeError:
        return None


def _level(encoding: str, first: int, last: int) -> Callable[[str], bool]:
    """Whether a character's first byte in `encoding` is in the range where the standard has the common ones."""

    def is_common(character: str) -> bool:
        try:
            encoded = character.encode(encoding)
        except UnicodeEncodeError:
            return False
        return len(encoded) == 2 and first <= encoded[0] <= last

    return is_common


_KANJI: Final = _level("euc_jp", 0xB0, 0xCF)


def _is_japanese(character: str) -> bool:
    return "\u3041" <= character <= "\u30ff" or _KANJI(character)


def _is_russian(character: str) -> bool:
    return "а" <= character <= "я" or "А" <= character <= "Я" or character in "ёЁ"


# The first of equals wins.
_CANDIDATES: Final[dict[str, Callable[[str], bool]]] = {
    "gb18030": _level("gb2312", 0xB0, 0xD7),
    "cp932": _is_japanese,
    "big5": _level("big5", 0xA4, 0xC6),
    "cp949": _level("euc_kr", 0xB0, 0xC8),
    "cp866": _is_russian,
    "cp1251": _is_russian,
    "cp437": _LATIN.__contains__,
    "cp850": _LATIN.__contains__,
    "cp1252": _LATIN.__contains__,
}
