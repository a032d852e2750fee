"""Text in pictures and scanned pages, through Tesseract: the optional extra `ocr`.

Tesseract runs in this process (tesserocr), and PDFium draws the pages. Both are C++ over hostile bytes: they belong in
the processes that parse files. Languages are those whose data is installed. Nobody has compared what comes out
with the picture, so that it carries a warning.
"""

from __future__ import annotations

import importlib.util
import io
import sys
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

from indexing.parse.building import Building
from indexing.parse.failure import ParseFailure
from indexing.parse.model import (
    PAGES_WITHOUT_TEXT,
    RECOGNISED_TEXT,
    Parsed,
    ParseLimits,
    ParseResult,
    Source,
    finish,
)

if TYPE_CHECKING:
    from PIL.Image import Image

MAX_PIXELS: Final = 50_000_000
"""Of one picture or page: an A3 page at 300 dots an inch has 17 million."""
MAX_PAGES: Final = 500
"""Of one file."""
MIN_CONFIDENCE: Final = 50
"""Percent. Tesseract reads letters into photographs, and is not sure of them."""

_FORMATS: Final = ("PNG", "JPEG", "TIFF", "GIF", "BMP", "WEBP")
_MARKS: Final = {
    b"\x89PNG\r\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF8": "image/gif",
    b"II*\0": "image/tiff",
    b"MM\0*": "image/tiff",
    b"BM": "image/bmp",
}
_DPI: Final = 200
_IMAGE: Final = 3  # FPDF_PAGEOBJ_IMAGE
_FEW_STROKES: Final = 30
_SECONDS: Final = 30.0
"""For one picture or page."""
_MAX_LANGUAGES: Final = 5
_DATA: Final = (
    Path(sys.prefix) / "share/tessdata",
    Path("/usr/share/tesseract-ocr/5/tessdata"),
    Path("/usr/share/tesseract-ocr/4.00/tessdata"),
    Path("/usr/share/tessdata"),
    Path("/usr/local/share/tessdata"),
)
_LOCK = Lock()  # PDFium is not made for threads


def missing() -> str | None:
    """Why no text is recognised here; None where it is."""
    absent = [name for name in ("tesserocr", "PIL", "pypdfium2") if importlib.util.find_spec(name) is None]
    if absent:
        return f"text recognition is not installed ({', '.join(absent)})"
    if _languages() is None:
        return "text recognition has no data for any language"
    return None


def read_picture(source: Source, limits: ParseLimits) -> list[ParseResult]:
    """Each page of a picture with its text. Raises `ParseFailure`: no_text, corrupt, too_large."""
    reason = missing()
    if reason is not None:
        raise ParseFailure(
            "no_text", f"is a picture, and {reason}", remedy="install the extra ocr, or add the text that it shows"
        )
    building = Building(limits.max_characters)
    deadline = time.monotonic() + limits.seconds
    blank = count = 0
    for number, picture in enumerate(_pictures(source.data), 1):
        count = number
        building.place(f"page {number}")
        text = _recognised(picture, deadline)
        blank += not text
        for paragraph in text.split("\n\n"):
            building.add(paragraph)
    if building.is_empty:
        raise ParseFailure("no_text", "is a picture in which no text was found", remedy="add the text that it shows")
    warnings = (RECOGNISED_TEXT, PAGES_WITHOUT_TEXT) if blank else (RECOGNISED_TEXT,)
    places = building.places() if count > 1 else ()
    return [
        finish(
            Parsed(building.text(), None, _media_type(source.data), warnings, blocks=building.blocks(), places=places)
        )
    ]


class Scan:
    """The pages of a PDF file as pictures, drawn when they are asked for."""

    def __init__(self, data: bytes, limits: ParseLimits) -> None:
        self._data = data
        self._deadline = time.monotonic() + limits.seconds
        self._left = MAX_PAGES if missing() is None else 0

    def page(self, number: int) -> list[str]:
        """The paragraphs that are recognised on a page, counted from 0; none where nothing is, or may be tried."""
        if self._left <= 0:
            return []
        self._left -= 1
        try:
            with _LOCK:
                picture = self._drawn(number)
        except Exception:  # noqa: BLE001 (PDFium may refuse what pypdf reads; the page then has no text)
            return []
        return _recognised(picture, self._deadline).split("\n\n") if picture is not None else []

    def _drawn(self, number: int) -> Image | None:
        import pypdfium2

        document = pypdfium2.PdfDocument(self._data)
        try:
            page = document[number]
            drawn_objects = list(islice(page.get_objects(max_depth=3), _FEW_STROKES))
            if len(drawn_objects) < _FEW_STROKES and all(found.type != _IMAGE for found in drawn_objects):
                return None  # an empty page, or a line or two on it
            width, height = page.get_size()
            if width * height * (_DPI / 72) ** 2 > MAX_PIXELS:
                return None
            drawn: Image = page.render(scale=_DPI / 72, grayscale=True).to_pil()
            return drawn
        finally:
            document.close()


def is_picture(data: bytes) -> bool:
    """Whether it begins like one; the two letters of a bitmap are also those of a text."""
    return (data.startswith(tuple(_MARKS)) and not data.startswith(b"BM")) or (
        data.startswith(b"RIFF") and data[8:12] == b"WEBP"
    )


def _media_type(data: bytes) -> str:
    return next((kind for mark, kind in _MARKS.items() if data.startswith(mark)), "image/webp")


def _pictures(data: bytes) -> Iterator[Image]:
    """The pages of a picture file, upright and on white. A picture that would unpack to too much is refused."""
    import PIL.Image
    import PIL.ImageOps
    import PIL.ImageSequence

    try:
        with PIL.Image.open(io.BytesIO(data), formats=_FORMATS) as opened:
            for number, frame in enumerate(PIL.ImageSequence.Iterator(opened)):
                if frame.width * frame.height > MAX_PIXELS:
                    raise ParseFailure("too_large", f"has more than {MAX_PIXELS} pixels", remedy="make it smaller")
                if number >= MAX_PAGES or (number and opened.format != "TIFF"):
                    return  # the frames of an animation are one picture
                upright = PIL.ImageOps.exif_transpose(frame).convert("RGBA")
                page = PIL.Image.new("RGBA", upright.size, "white")
                page.alpha_composite(upright)
                yield page.convert("L")
    except ParseFailure:
        raise
    except PIL.Image.DecompressionBombError:
        raise ParseFailure("too_large", f"has more than {MAX_PIXELS} pixels", remedy="make it smaller") from None
    except Exception:  # noqa: BLE001 (Pillow raises dozens of kinds for a damaged picture)
        raise ParseFailure("corrupt", "is not a readable picture", remedy="save it again") from None


def _recognised(picture: Image, deadline: float) -> str:
    """The text in a picture; empty where there is none, or no time is left."""
    import tesserocr

    seconds = min(deadline - time.monotonic(), _SECONDS)
    found = _languages()
    if found is None or seconds <= 0:
        return ""
    folder, languages = found
    api: Any
    with tesserocr.PyTessBaseAPI(path=str(folder), lang=languages, psm=tesserocr.PSM.AUTO) as api:
        api.SetImage(picture)
        if not api.Recognize(int(seconds * 1000)) or api.MeanTextConf() < MIN_CONFIDENCE:
            return ""
        text: str = api.GetUTF8Text()
    return text.strip()


def _languages() -> tuple[Path, str] | None:
    """Where the data is, and the languages that it is of, English first."""
    for folder in _DATA:
        names = sorted(path.stem for path in folder.glob("*.traineddata") if path.stem not in {"osd", "equ"})
        if names:
            return folder, "+".join(sorted(names, key=lambda name: (name != "eng", name))[:_MAX_LANGUAGES])
    return None
