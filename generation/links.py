"""Links and addresses in an answer: only those leave that stand word for word in a source which the answer cites.

A document may tell the model to write what else it reads into an address that its author watches (`![](https://...)`
is even fetched without a click). Whatever would be an address to a browser, to Markdown or to a chat program counts:
with a scheme, from `//`, `www.` or a domain name, of an e-mail, as a Markdown target, in an HTML tag, written with
character references. What is not such an address is text, and the asker may read it. An image becomes a link: fetched
images in a row could spell a text, also where each of their addresses stands in a source.

An address ends where every renderer ends it: at ASCII white space or `<` (GitHub Flavored Markdown, "Autolinks"). It is
compared as it is written: signs behind it, or a choice of character references in it, would carry data out as well.
"""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import regex

from generation.prompt import PromptSource

REMOVED: Final = "[link removed]"
WARNING: Final = "links-removed"

_LONGEST: Final = 2_000
"""Characters without white space; more than that is no text."""
_LONGEST_TAG: Final = 500
_PATIENCE: Final = 400
"""Characters for which an address waits for its citation."""
_FEW: Final = 3
"""Signs that may stand right behind an address: the end of a sentence, and no message."""

_END: Final = regex.compile(r"[ \t\n\r\f\v<]")
# Scripts without spaces, CJK punctuation and the white space of Unicode: text may go on right after an address.
_LOOSE = (
    r"\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
    r"\u3000-\u303f\uff00-\uff20\u00a0\u2000-\u200a\u2028\u2029\u202f\u205f"
)
_BREAK: Final = regex.compile(rf"[{_LOOSE}]")
_BASE_END: Final = regex.compile(rf"[{_LOOSE}\"'`|)\[\]}}>\\^“”‘’«»]")
_TRIMMED: Final = ".,;:!?'\"*_~`)]}>|\\。，；：！？、）」』】》“”‘’«»"
_LETTER = r"\p{Latin}\p{Greek}\p{Cyrillic}\d"
_LABEL = rf"[{_LETTER}](?:[{_LETTER}-]{{0,61}}[{_LETTER}])?"
_COMMON = (
    "com|net|org|edu|gov|mil|int|info|biz|name|pro|io|ai|app|dev|cloud|site|online|shop|store|tech|xyz|top|club|live|"
    "link|click|page|web|wiki|tv|cc|co|uk|eu|de|ch|fr|es|nl|be|pl|ru|ua|cn|hk|tw|jp|kr|br|ca|au|nz|za|se|dk|fi|cz|tk|ml|"
    "ga|cf|gq|zip|mov|fyi|lol|icu|ws|su|it|at|in|us|me|to|ly|gl|gd|sh"
)
_SCHEMES = "https?|wss?|ftps?|sftp|mailto|data|javascript|vbscript|file|tel|sms|blob|magnet|intent|view-source|cid|irc"
_START: Final = regex.compile(
    rf"""(?P<target>\]\()
    | (?i:[a-z][a-z0-9+.\-]{{0,30}}:[/\\]{{2}}|(?<![{_LETTER}])(?:{_SCHEMES}):(?=[^\s:]))
    | (?<![:{_LETTER}/\\])[/\\]{{2}}(?=[^\s/\\])
    | (?i:(?<![{_LETTER}])www\.)
    | [\w.+\-%]{{1,64}}@(?:{_LABEL}\.)+[\p{{L}}][\p{{L}}\d-]+
    | (?:{_LABEL}\.)+(?:\p{{L}}{{2,24}}|xn--[a-z0-9-]+)\.?(?::\d+)?(?=[/?\#\\])
    | (?:{_LABEL}\.)+(?:{_COMMON}|COM|NET|ORG)(?![{_LETTER}-])(?!\.[{_LETTER}])
    | \d{{1,3}}(?:\.\d{{1,3}}){{3}}(?=:\d|[/?])
    | (?<=\]:)[A-Za-z][A-Za-z0-9+.\-]{{1,30}}:(?=[^\s:])
    """,
    regex.VERBOSE,
)
# What is an address wherever it stands; and the last label of what may be a server's name at the beginning of a word.
_SPOKEN: Final = regex.compile(
    r"(?i)\]\(|\]:|@|//|\\\\|www\.|[a-z][a-z0-9+.\-]{1,30}:(?=[^\s:])|\d{1,3}(?:\.\d{1,3}){3}(?=[:/?])"
)
_HOST: Final = regex.compile(rf"[\W_]*(?:{_LABEL}\.)+(\p{{L}}{{2,24}}|xn--[a-z0-9-]+)\.?(?=[/?\#:]|[^{_LETTER}.]|$)")
_SERVERS: Final = frozenset(_COMMON.split("|")) - {"zip", "mov", "sh", "pl", "ai", "ml", "pro", "name"}
"""Ends of servers' names that are no ends of files' names."""
_ADDRESS: Final = regex.compile(r"[:/.\\&#?%@]")
_ESCAPED: Final = regex.compile(r"\\([!-/:-@\[-`{-~])")
_TAG: Final = regex.compile(r"<[A-Za-z/!?]")
_SCHEME: Final = regex.compile(r"[A-Za-z][A-Za-z0-9+.\-]{1,30}:(?=[^\s:])")
"""Of any address where Markdown expects one: in `<...>`, and in a definition ("[x]: ...")."""
_BLANK_LINE: Final = regex.compile(r"\n[ \t\r]*\n")
_ACTIVE: Final = regex.compile(
    r"(?i)</?(?:a|area|audio|base|body|button|embed|form|frame|frameset|iframe|image|img|input|link|math|meta|object|"
    r"picture|script|source|style|svg|track|video)\b|="
)
_MARKS: Final = regex.compile(r"[\[【]\s*S\d{1,4}(?:\s*[,;、，]\s*S\d{1,4})*\s*[\]】]")
_KEY: Final = regex.compile(r"S\d{1,4}")
_WINDOW: Final = 80


class LinkCheck:
    """Replaces every address that stands in no cited source by `REMOVED`.

    A source counts as cited where its mark ("[S1]") stands anywhere before the address, or behind it in the same
    line. Until then the address, and what follows it, is held back.
    """

    def __init__(self, sources: Sequence[PromptSource]) -> None:
        self._known: dict[str, set[str]] = {}
        for source in sources:
            for link in links_in(f"{source.title}\n{source.text}"):
                self._known.setdefault(link, set()).add(source.key)
        self._held = ""
        self._dropping = False
        self._defining = False
        self._queue: list[tuple[str, frozenset[str] | None]] = []
        self._cited: set[str] = set()
        self._window = ""
        self._ready: list[str] = []
        self.removed = 0

    @property
    def detail(self) -> Mapping[str, int | bool]:
        return {"links_removed": self.removed} if self.removed else {}

    @property
    def warnings(self) -> tuple[str, ...]:
        return (WARNING,) if self.removed else ()

    def feed(self, text: str) -> str:
        self._held += text
        self._work(complete=False)
        return self._take()

    def flush(self) -> str:
        self._work(complete=True)
        for said, keys in self._queue:
            self._ready.append(said if keys is None else self._replaced())
        self._queue = []
        return self._take()

    def _take(self) -> str:
        taken, self._ready = "".join(self._ready), []
        return taken

    def _work(self, *, complete: bool) -> None:
        """Judge every word and tag whose end is known; with `complete`, all of them."""
        while self._held:
            step = self._tag(complete) if self._held[0] == "<" else self._word(complete)
            if step == 0:
                return
            self._held = self._held[step:]

    def _word(self, complete: bool) -> int:
        """Judge what stands before the next end or, without an address in it, the next break; returns its length."""
        held = self._held
        if _END.match(held):
            self._dropping = False
            return self._plain(held[0])
        if self._dropping:
            rest = _END.search(held)
            return rest.start() if rest else len(held)
        if _BREAK.match(held):
            return self._plain(held[0])
        end, broken = _END.search(held, endpos=_LONGEST), _BREAK.search(held, endpos=_LONGEST)
        if broken and (end is None or broken.start() < end.start()) and not _begins(held[: broken.start()]):
            return self._judged(held[: broken.start()])
        if end is not None:
            return self._judged(held[: end.start()])
        if len(held) >= _LONGEST:
            self._dropping = True
            self._say(self._replaced())
            return _LONGEST
        return self._judged(held) if complete else 0

    def _plain(self, character: str) -> int:
        self._say(character)
        return 1

    def _tag(self, complete: bool) -> int:
        """Judge the HTML tag or autolink at the beginning; returns its length, 0 to wait.

        Up to the first `>`: where a quoted value goes on behind it, an equals sign stands before it. What may be the
        beginning of a tag and does not end here gets a space, so that nothing behind it becomes part of a tag.
        """
        held = self._held[: _LONGEST_TAG + 1]
        self._dropping = False
        if len(held) > 1 and not _TAG.match(held):
            return self._plain("<")
        closing, blank = held.find(">"), _BLANK_LINE.search(held)
        if closing < 0 or (blank is not None and blank.start() < closing):
            going_on = blank is None and len(held) <= _LONGEST_TAG
            if going_on and not complete:
                return 0
            return self._plain("<") if going_on and not _ACTIVE.search(held) else self._opened()
        tag, inner = held[: closing + 1], held[1:closing]
        keys = self._known.get(inner)
        if keys is not None:
            self._say(tag, frozenset(keys))
        elif not (_ACTIVE.search(tag) or _SCHEME.match(inner) or _begins(inner)):
            self._say(tag)
        elif "<" in inner:
            return self._opened()
        else:
            self._say(self._replaced())
        return len(tag)

    def _opened(self) -> int:
        self._say("< ")
        return 1

    def _judged(self, word: str) -> int:
        """Let the word through, but for the addresses in it; an image becomes a link, so that nothing is fetched."""
        length, word = len(word), without_images(word)
        at = 0
        if self._defining and _SCHEME.match(word):
            at = self._address(word)
        self._defining = word.endswith("]:")
        while (found := _START.search(word, at)) is not None:
            if found.group("target"):
                step = self._target(word, at, found.end())
            else:
                self._plain_text(word[at : found.start()])
                step = self._address(word[found.start() :])
                at = found.start()
            at += step
        self._plain_text(word[at:])
        return length

    def _plain_text(self, text: str) -> None:
        self._say(self._replaced() if _hidden(text) else text)

    def _target(self, word: str, at: int, begin: int) -> int:
        """A Markdown target; returns how much of `word` from `at` on was said."""
        inner = _balanced(word[begin:])
        keys = self._known.get(inner)
        if not _ADDRESS.search(inner):
            self._plain_text(word[at : begin + len(inner)])
            return begin + len(inner) - at
        closing = begin + len(inner) + (word[begin + len(inner) :][:1] == ")")
        if keys is None:
            self._plain_text(word[at : begin - 1])
            self._say(f" {self._replaced()}")
        else:
            self._plain_text(word[at : begin - 2])
            self._say(word[begin - 2 : closing], frozenset(keys))
        return closing - at

    def _address(self, rest: str) -> int:
        """An address from the beginning of `rest`; returns its length."""
        keys = self._keys(rest)
        if keys is not None:
            self._say(rest, keys)
            return len(rest)
        base = _base(rest)
        keys = self._keys(base)
        if keys is None:
            self._say(self._replaced())
            return max(len(base), 1)
        # What follows must not become part of the address.
        bare = rest.rstrip(_TRIMMED)
        self._say(base if len(bare) <= len(base) and len(rest) - len(bare) <= _FEW else f"{base} ", keys)
        return len(base)

    def _keys(self, link: str) -> frozenset[str] | None:
        """The sources in which `link` stands, but for a few signs behind it; None for none."""
        bare = link.rstrip(_TRIMMED)
        found = self._known.get(link) or (self._known.get(bare) if len(link) - len(bare) <= _FEW else None)
        return None if found is None else frozenset(found)

    def _replaced(self) -> str:
        self.removed += 1
        return REMOVED

    def _say(self, text: str, keys: frozenset[str] | None = None) -> None:
        """Let `text` out, or let it wait behind an address; one with `keys` waits for a mark of one of them."""
        if not text:
            return
        self._queue.append((text, keys))
        window = self._window + text
        self._cited.update(key for marks in _MARKS.finditer(window) for key in _KEY.findall(marks.group()))
        self._window = window[-_WINDOW:]
        while self._queue:
            said, wanted = self._queue[0]
            if wanted is not None and not wanted & self._cited:
                behind = "".join(text for text, _ in self._queue[1:])
                if "\n" not in behind and len(behind) <= _PATIENCE:
                    return
                said = self._replaced()
            self._ready.append(said)
            del self._queue[0]


def title_alone(title: str) -> str:
    """A source's title where nothing is cited: paths and names of files stay, other addresses go, as in `LinkCheck`.

    "notes.zip#member/x.com" is what a document is called, though its parts look like names of servers.
    """
    words = title.split(" ")
    if "<" not in title and any(map(_is_path, words)):
        return " ".join(word if _is_path(word) else title_alone(word) for word in words)
    check = LinkCheck(())
    return check.feed(title) + check.flush()


def _is_path(word: str) -> bool:
    """Whether `word` is the name of a file, or a path, that `LinkCheck` takes for an address, and no browser does."""
    found = _START.search(word)
    if found is None or _hidden(word) or _SPOKEN.search(word):
        return False
    host = _HOST.match(word)
    return host is None or (word[host.end() :][:1] not in set("/?\\:") and host.group(1).casefold() not in _SERVERS)


class NoImages:
    """The last of all checks: no sign before what was taken out makes an image of it ("!" before "[link removed]")."""

    def __init__(self) -> None:
        self._marked = False

    @property
    def detail(self) -> Mapping[str, int | bool]:
        return {}

    @property
    def warnings(self) -> tuple[str, ...]:
        return ()

    def feed(self, text: str) -> str:
        if self._marked and text.startswith("["):
            text = f" {text}"
        self._marked = text.endswith("!") if text else self._marked
        return without_images(text)

    def flush(self) -> str:
        return ""


def without_images(text: str) -> str:
    return text.replace("![", "! [")


def links_in(text: str) -> Iterator[str]:
    """The addresses in `text`, in the forms in which an answer may have them."""
    for word in _END.split(text.replace(">", "> ")):
        # Most words hold none of the signs that an address needs.
        if not _ADDRESS.search(word.rstrip(_TRIMMED)) and "www." not in word.casefold():
            continue
        for found in _START.finditer(word, overlapped=True):
            rest = word[found.end() :] if found.group("target") else word[found.start() :]
            if found.group("target"):
                rest = _balanced(rest)
            yield from _forms(rest)
            yield from _forms(_base(rest))


def _begins(word: str) -> bool:
    """Whether an address begins in `word`, also one that is hidden."""
    return bool(_START.search(word)) or _hidden(word)


def _hidden(text: str) -> bool:
    """Whether an address is written with character references or escapes, which renderers resolve."""
    decoded = html.unescape(_ESCAPED.sub(r"\1", text))
    return decoded != text and bool(_START.search(decoded))


def _forms(link: str) -> Iterator[str]:
    """An address as it stands there, as renderers read it, and as they are given it; with what follows, and without."""
    read = html.unescape(link)
    for form in (link, read, read.replace("&", "&amp;")):
        yield form
        yield form.rstrip(_TRIMMED)


def _base(rest: str) -> str:
    """An address up to where ordinary text may have begun."""
    end = _BASE_END.search(rest, 1)
    return rest[: end.start()] if end else rest


def _balanced(text: str) -> str:
    """`text` up to the parenthesis that closes what was opened before it."""
    depth = 0
    for at, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if depth < 0:
            return text[:at]
    return text
