"""The language that a file states for itself, as metadata."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

LANGUAGE: Final = "language"
"""The name of the metadata."""

_TAG = re.compile(r"([a-z]{2,3})(?:[-_][a-z0-9]{1,8})*", re.IGNORECASE | re.ASCII)
_NONE: Final = frozenset({"und", "mul", "mis", "zxx", "xx"})
"""Tags that name no language."""
_OLDER: Final = {"iw": "he", "in": "id", "ji": "yi", "jw": "jv", "mo": "ro", "sh": "sr"}
# ISO 639-2 and its bibliographic codes, each with what ISO 639-1 has for it.
_SHORT: Final = (
    "aaraa abkab adpdz afraf akaak albsq amham araar argan armhy asmas avaav aveae aymay azeaz bakba bambm baqeu "
    "belbe benbn bihbh bisbi bodbo bosbs brebr bulbg burmy catca cescs chach chece chizh chucu chvcv corkw cosco "
    "crecr cymcy czecs danda deude divdv drhmn dutnl dzodz ellel engen epoeo estet euseu eweee faofo fasfa fijfj "
    "finfi frafr frefr fryfy fulff geoka gerde glagd glega glggl glvgv greel grngn gujgu hatht hauha hebhe herhz "
    "hinhi hmoho hrvhr hunhu hyehy iboig iceis idoio iiiii ikuiu ileie inaia indid ipkik islis itait javjv jpnja "
    "kalkl kankn kasks katka kaukr kazkk khmkm kikki kinrw kirky komkv konkg korko kuakj kurku laolo latla lavlv "
    "limli linln litlt ltzlb lublu luglg macmk mahmh malml maomi marmr mayms mkdmk mlgmg mltmt molmo monmn mrimi "
    "msams myamy nauna navnv nblnr ndend ndong nepne nldnl nnonn nobnb norno nyany ocioc ojioj orior ormom ossos "
    "panpa perfa plipi polpl porpt pusps quequ rohrm ronro rumro runrn rusru sagsg sansa sccsr scrhr sinsi slksk "
    "slosk slvsl smese smosm snasn sndsd somso sotst spaes sqisq srdsc srpsr sswss sunsu swasw swesv tahty tamta "
    "tattt telte tgktg thath tibbo tirti tonto tsntn tsots tuktk turtr twitw uigug ukruk urdur uzbuz venve vievi "
    "volvo welcy wlnwa wolwo xhoxh yidyi yoryo zhaza zhozh zulzu "
)
_SHORTER: Final = {entry[:3]: entry[3:] for entry in _SHORT.split()}


def stated(*tags: object) -> dict[str, str]:
    """`{"language": "de"}` for the tag "de-AT", "deu" or "de_DE"; empty where there is none, or several that differ.

    The language alone is kept, without region and script, so that one filter finds all of it.
    """
    found = {language for tag in tags if isinstance(tag, str) and (language := _language(tag)) is not None}
    return {LANGUAGE: found.pop()} if len(found) == 1 else {}


def language_among(metadata: Mapping[str, object] | None) -> str | None:
    """The language among a document's metadata; None where there is none, or where it is no text."""
    language = (metadata or {}).get(LANGUAGE)
    return language if isinstance(language, str) else None


def _language(tag: str) -> str | None:
    match = _TAG.fullmatch(tag.strip())
    if match is None:
        return None
    language = match.group(1).lower()
    language = _SHORTER.get(language, language)
    return None if language in _NONE else _OLDER.get(language, language)
