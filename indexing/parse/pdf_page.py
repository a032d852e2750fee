"""One page of a PDF as pieces of text with their place, size and visibility, and the rules drawn around them.

pypdf gives the text in the order of the file; the rest is followed here from the operators that it passes on
(ISO 32000-1, sections 8.4 and 9.3). Coordinates are in points, turned so that most of the text runs from left to right.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from pypdf import PageObject

Matrix = tuple[float, float, float, float, float, float]
Box = tuple[float, float, float, float]

_IDENTITY: Final[Matrix] = (1.0, 0.0, 0.0, 1.0, 0.0, 0.0)
_TINY_POINTS: Final = 2.0
_INVISIBLE_MODES: Final = frozenset({3, 7})
_RULE_POINTS: Final = 3.0
"""A filled rectangle that is no thicker is a line."""
_MAX_RULES: Final = 5_000
_MAX_GROUNDS: Final = 500
_WHITE: Final = 0.96
_SHOWS: Final = frozenset({b"Tj", b"TJ", b"'", b'"'})
_FILLS: Final = frozenset({b"f", b"F", b"f*", b"B", b"B*", b"b", b"b*"})
_STROKES: Final = frozenset({b"S", b"s", b"B", b"B*", b"b", b"b*"})


class Piece(NamedTuple):
    """Text that one operator shows; line ends are part of it. `x`, `y`: where it starts. `size` in points."""

    text: str
    x: float
    y: float
    size: float
    bold: bool
    hidden: bool


class Rule(NamedTuple):
    """A straight line. Horizontal: at the height `at` from `start` to `end`; otherwise the axes change places."""

    horizontal: bool
    at: float
    start: float
    end: float


@dataclass(slots=True)
class Page:
    pieces: list[Piece] = field(default_factory=list)
    rules: list[Rule] = field(default_factory=list)
    recognised: bool = False
    """All its text is invisible and lies under a picture: what a scanner's text recognition leaves."""


@dataclass(frozen=True, slots=True)
class _State:
    """What `q` saves and `Q` brings back. `white` and `clear`: what is filled is white, or not to be seen."""

    mode: int = 0
    white: bool = False
    clear: bool = False


def read_page(page: PageObject, keep_within: Callable[..., None]) -> Page:
    """The pieces of `page` in the file's order. `keep_within` is called before every operator and may raise."""
    ink = _Ink(page, keep_within)
    page.extract_text(visitor_operand_before=ink.before, visitor_text=ink.text)
    return ink.page()


class _Ink:
    """Follows colour, visibility and paths beside pypdf, which follows text and matrices."""

    def __init__(self, page: PageObject, keep_within: Callable[..., None]) -> None:
        self._keep_within = keep_within
        left, bottom, right, top = (float(side) for side in page.mediabox)
        self._sheet: Box = (min(left, right), min(bottom, top), max(left, right), max(bottom, top))
        resources = _dictionary(page.get("/Resources"))
        self._graphics = _dictionary(resources.get("/ExtGState"))
        self._images = {
            name
            for name, item in _dictionary(resources.get("/XObject")).items()
            if _dictionary(item).get("/Subtype") == "/Image"
        }
        self._state = _State()
        self._stack: list[_State] = []
        self._path: list[tuple[tuple[float, float], tuple[float, float]]] = []
        self._boxes: list[Box] = []
        self._point = (0.0, 0.0)
        self._shown = self._unseen = self._pale = 0
        self._pieces: list[tuple[Piece, bool, int]] = []
        self._rules: list[Rule] = []
        self._dark: list[Box] = []
        self._pictures: list[Box] = []

    def before(self, operator: bytes, operands: Any, matrix: Any, _text_matrix: Any) -> None:
        self._keep_within()
        # An operator with impossible operands draws nothing.
        with suppress(TypeError, ValueError, IndexError, KeyError, AttributeError, OverflowError):
            self._follow(operator, operands, matrix)

    def text(self, text: str, matrix: Any, text_matrix: Any, font: Any, size: float) -> None:
        shown, unseen, pale = self._shown, self._unseen, self._pale
        self._shown = self._unseen = self._pale = 0
        if not text:
            return
        a, b, c, d, x, y = _times(_matrix(text_matrix), _matrix(matrix))
        height = abs(size) * math.sqrt(abs(a * d - b * c))
        if not math.isfinite(height + x + y):
            height, x, y = 0.0, 0.0, 0.0
        left, bottom, right, top = self._sheet
        # A size of nothing at all means that the file's matrix made no sense, not that the text is tiny.
        outside = not (left - 1 <= x <= right + 1 and bottom - 1 <= y <= top + 1)
        tiny = 0 < height <= _TINY_POINTS
        hidden = bool(shown) and (unseen * 2 > shown or outside or tiny)
        name = str(font.get("/BaseFont", "")) if font is not None else ""
        bold = "bold" in name.lower() or "black" in name.lower()
        quarter = round(math.atan2(b, a) / (math.pi / 2)) % 4 if a or b else 0
        self._pieces.append((Piece(text, x, y, height, bold, hidden), pale * 2 > shown > 0, quarter))

    def page(self) -> Page:
        visible = any(not piece.hidden and piece.text.strip() for piece, _, _ in self._pieces)
        hidden = any(piece.hidden and piece.text.strip() for piece, _, _ in self._pieces)
        recognised = hidden and not visible and any(_covers(box, self._sheet) for box in self._pictures)
        pieces = []
        turns: Counter[int] = Counter()
        grounds = self._dark + self._pictures
        for piece, pale, quarter in self._pieces:
            # White text is read on a dark ground, and is not to be seen without one.
            unseen = piece.hidden or (pale and not any(_holds(box, piece.x, piece.y) for box in grounds))
            pieces.append(piece._replace(hidden=unseen and not recognised))
            turns[quarter] += len(piece.text.strip())
        turn = turns.most_common(1)[0][0] if turns else 0
        return Page(
            [_turned_piece(piece, turn) for piece in pieces],
            [_turned_rule(rule, turn) for rule in self._rules] if len(self._rules) < _MAX_RULES else [],
            recognised,
        )

    def _follow(self, operator: bytes, operands: Any, matrix: Any) -> None:
        if operator in _SHOWS:
            self._show(operands)
        elif operator == b"q":
            if len(self._stack) < 1_000:
                self._stack.append(self._state)
        elif operator == b"Q":
            self._state = self._stack.pop() if self._stack else self._state
        elif operator == b"Tr":
            self._state = replace(self._state, mode=int(operands[0]))
        elif operator in {b"g", b"rg", b"k", b"sc", b"scn"}:
            self._state = replace(self._state, white=_is_white(operator, operands))
        elif operator == b"cs":
            self._state = replace(self._state, white=False)
        elif operator == b"gs":
            opacity = _dictionary(self._graphics.get(operands[0])).get("/ca")
            if opacity is not None:
                self._state = replace(self._state, clear=float(opacity) < 0.05)
        elif operator == b"Do":
            if operands[0] in self._images and len(self._pictures) < _MAX_GROUNDS:
                corners = [_apply(matrix, x, y) for x, y in ((0, 0), (1, 0), (0, 1), (1, 1))]
                self._pictures.append(_box(corners))
        else:
            self._draw(operator, operands, matrix)

    def _show(self, operands: Any) -> None:
        items = operands[-1] if operands and isinstance(operands[-1], list) else operands
        count = sum(len(item) for item in items if isinstance(item, (str, bytes)))
        self._shown += count
        if self._state.mode in _INVISIBLE_MODES or self._state.clear:
            self._unseen += count
        if self._state.white:
            self._pale += count

    def _draw(self, operator: bytes, operands: Any, matrix: Any) -> None:
        if len(self._path) + len(self._boxes) > _MAX_RULES:
            self._path, self._boxes = [], []
        if operator == b"re":
            x, y, width, height = (float(value) for value in operands[:4])
            self._boxes.append(_box([_apply(matrix, x, y), _apply(matrix, x + width, y + height)]))
        elif operator == b"m":
            self._point = _apply(matrix, float(operands[0]), float(operands[1]))
        elif operator == b"l":
            end = _apply(matrix, float(operands[0]), float(operands[1]))
            self._path.append((self._point, end))
            self._point = end
        elif operator in _FILLS or operator in _STROKES or operator == b"n":
            if len(self._rules) < _MAX_RULES:
                self._paint(filled=operator in _FILLS, stroked=operator in _STROKES)
            self._path, self._boxes = [], []

    def _paint(self, *, filled: bool, stroked: bool) -> None:
        seen = not self._state.white and not self._state.clear
        for left, bottom, right, top in self._boxes:
            if filled and min(right - left, top - bottom) <= _RULE_POINTS:
                self._rule((left, bottom), (right, top))
            elif filled and seen and len(self._dark) < _MAX_GROUNDS:
                self._dark.append((left, bottom, right, top))
            if stroked and min(right - left, top - bottom) > _RULE_POINTS:
                for start, end in (
                    ((left, bottom), (right, bottom)),
                    ((left, top), (right, top)),
                    ((left, bottom), (left, top)),
                    ((right, bottom), (right, top)),
                ):
                    self._rule(start, end)
        for start, end in self._path if stroked else ():
            self._rule(start, end)
        if filled and seen and self._path and len(self._dark) < _MAX_GROUNDS:
            self._dark.append(_box([point for line in self._path for point in line]))

    def _rule(self, start: tuple[float, float], end: tuple[float, float]) -> None:
        left, bottom, right, top = _box([start, end])
        if top - bottom <= _RULE_POINTS < right - left:
            self._rules.append(Rule(True, (bottom + top) / 2, left, right))
        elif right - left <= _RULE_POINTS < top - bottom:
            self._rules.append(Rule(False, (left + right) / 2, bottom, top))


def _turned_piece(piece: Piece, quarters: int) -> Piece:
    x, y = _turned(piece.x, piece.y, quarters)
    return piece._replace(x=x, y=y)


def _turned_rule(rule: Rule, quarters: int) -> Rule:
    ends = (
        ((rule.start, rule.at), (rule.end, rule.at))
        if rule.horizontal
        else ((rule.at, rule.start), (rule.at, rule.end))
    )
    left, bottom, right, top = _box([_turned(x, y, quarters) for x, y in ends])
    horizontal = rule.horizontal if quarters % 2 == 0 else not rule.horizontal
    return Rule(True, bottom, left, right) if horizontal else Rule(False, left, bottom, top)


def _turned(x: float, y: float, quarters: int) -> tuple[float, float]:
    """Turn a point back by `quarters` of a full turn, against the direction in which the text was turned."""
    return ((x, y), (y, -x), (-x, -y), (-y, x))[quarters]


def _is_white(operator: bytes, operands: Any) -> bool:
    """Of the colour spaces that a name stands for (sc, scn), one and three components are taken as grey and RGB."""
    values = [float(value) for value in operands if isinstance(value, (int, float))]
    if operator == b"k" or len(values) == 4:
        return bool(values) and max(values) <= 1 - _WHITE
    return bool(values) and len(values) in {1, 3} and min(values) >= _WHITE


def _dictionary(value: Any) -> Mapping[str, Any]:
    """`value`, followed if it is a reference; an empty mapping if it is no dictionary."""
    found = value.get_object() if hasattr(value, "get_object") else value
    return found if isinstance(found, Mapping) else {}


def _matrix(values: Any) -> Matrix:
    return tuple(float(value) for value in values) if len(values) == 6 else _IDENTITY  # type: ignore[return-value]


def _times(m: Matrix, n: Matrix) -> Matrix:
    return (
        m[0] * n[0] + m[1] * n[2],
        m[0] * n[1] + m[1] * n[3],
        m[2] * n[0] + m[3] * n[2],
        m[2] * n[1] + m[3] * n[3],
        m[4] * n[0] + m[5] * n[2] + n[4],
        m[4] * n[1] + m[5] * n[3] + n[5],
    )


def _apply(matrix: Any, x: float, y: float) -> tuple[float, float]:
    a, b, c, d, e, f = _matrix(matrix)
    return a * x + c * y + e, b * x + d * y + f


def _box(points: list[tuple[float, float]]) -> Box:
    xs, ys = [x for x, _ in points], [y for _, y in points]
    return min(xs), min(ys), max(xs), max(ys)


def _holds(box: Box, x: float, y: float) -> bool:
    return box[0] - 1 <= x <= box[2] + 1 and box[1] - 1 <= y <= box[3] + 1


def _covers(box: Box, sheet: Box) -> bool:
    """Whether a picture fills most of the sheet."""
    width = min(box[2], sheet[2]) - max(box[0], sheet[0])
    height = min(box[3], sheet[3]) - max(box[1], sheet[1])
    return width > 0 and height > 0 and width * height > 0.6 * (sheet[2] - sheet[0]) * (sheet[3] - sheet[1])
