"""Passages that speak to the model: flagged for the audit and for the asker, never treated otherwise.

What a passage says changes nothing about who may read what, and it stands in the prompt as escaped data. But whoever
looks after a tenant wants to know of a document that tries. Rules are data (`data/injection.toml`), by what they look
for: overriding instructions, another role, addressing a model, forged delimiters, asking for the prompt, asking to put
data into an address, and concealment. The families follow the common lists of indirect prompt injections (Greshake et
al. 2023, "Not what you've signed up for"; OWASP LLM01). A paraphrase gets past any such list: no safety rests on it.
"""

from __future__ import annotations

import hashlib
import tomllib
import unicodedata
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
import regex

_FILE: Final = Path(__file__).parent / "data" / "injection.toml"
_LONGEST: Final = 20_000
"""Characters of one passage that are read; chunks are shorter."""
_SPACES: Final = regex.compile(r"[^\S\n]+")
_FORMAT: Final = regex.compile(r"\p{Cf}+")
_HAN: Final = regex.compile(r"\p{Han}")
_SPACED_OUT: Final = regex.compile(r"\b(?:\w[ .\-_*]){4,}\w\b")
_JOINERS: Final = regex.compile(r"[ .\-_*]")
# Letters of other scripts that look like Latin ones.
_LOOKALIKES: Final = str.maketrans("аеорсухіѕјԁɡӏοεαν", "aeopcyxisjdgloeav")


class _Rule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    pattern: str
    needs: tuple[str, ...] = ()


class _Rules(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    revision: int
    parts: dict[str, str]
    rule: list[_Rule]


@dataclass(frozen=True, slots=True)
class _Compiled:
    """`han` where the rule speaks of Chinese, and is asked about text with Chinese characters alone."""

    name: str
    pattern: regex.Pattern[str]
    han: bool
    needs: tuple[str, ...]

    def fits(self, plain: str, *, chinese: bool) -> bool:
        if (self.han and not chinese) or (self.needs and not any(needed in plain for needed in self.needs)):
            return False
        return self.pattern.search(plain) is not None


def _read() -> tuple[str, tuple[_Compiled, ...]]:
    data = _FILE.read_bytes()
    rules = msgspec.convert(tomllib.loads(data.decode("utf-8")), _Rules)
    compiled = []
    for rule in rules.rule:
        pattern = rule.pattern
        for name, part in rules.parts.items():
            pattern = pattern.replace(f"{{{name}}}", part)
        compiled.append(_Compiled(rule.name, regex.compile(pattern), bool(_HAN.search(pattern)), rule.needs))
    return f"injection-{rules.revision}/{hashlib.sha256(data).hexdigest()[:12]}", tuple(compiled)


REVISION, _COMPILED = _read()


def instructions_in(text: str) -> tuple[str, ...]:
    """The kinds of instructions to a model that `text` holds, each once; none for an honest passage."""
    plain = _plain(text[:_LONGEST])
    chinese = bool(_HAN.search(plain))
    return tuple(sorted({rule.name for rule in _COMPILED if rule.fits(plain, chinese=chinese)}))


def _plain(text: str) -> str:
    folded = _FORMAT.sub("", unicodedata.normalize("NFKC", text)).casefold().translate(_LOOKALIKES)
    joined = _SPACED_OUT.sub(lambda found: str(_JOINERS.sub("", found.group())), folded)
    return str(_SPACES.sub(" ", joined))
