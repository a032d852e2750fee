"""A change that is to be tried, from a TOML file: other values of what a contract may say, or another template.

    name = "stricter"

    [retrieval]          # top_k, mode, threshold, rerank = false, boosts
    threshold = 0.3

    [template]           # other instructions under the name of a template
    name = "default"
    file = "instructions.txt"    # or system = "..."

    [generation]         # pools of the deployment, the first of which answers
    pools = ["large"]

    [embedding]          # an embedding model of the deployment
    model = "org/name@commit"

    [chunking]           # target_chars, overlap_chars, target_tokens, overlap_tokens
    target_chars = 600

One thing at a time is easier to judge, but all of them may be changed together.
"""

from __future__ import annotations

import hashlib
import tomllib
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from generation.templates import MAX_SYSTEM, checked
from tenancy.contract import ChunkingTerms, Contract, EngineName, RetrievalTerms, TemplateName
from tenancy.errors import InvalidInput

Terms = TypeVar("Terms", RetrievalTerms, ChunkingTerms)

_REMEDY: Final = "see docs/operations/evaluation.md"


class TemplateChange(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Instructions that take the place of those of the template `name`: `system`, or the text of `file`."""

    name: TemplateName = "default"
    system: str | None = None
    file: str | None = None


class GenerationChange(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    pools: list[EngineName] = msgspec.field()


class EmbeddingChange(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    model: str


class Change(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What is to be tried; `name` is for people. Of `template` the text is in `system`."""

    name: str = ""
    retrieval: RetrievalTerms = RetrievalTerms()
    chunking: ChunkingTerms = ChunkingTerms()
    template: TemplateChange | None = None
    generation: GenerationChange | None = None
    embedding: EmbeddingChange | None = None

    @property
    def digest(self) -> str:
        """Equal for changes that do the same, whatever they are called."""
        nameless = msgspec.structs.replace(self, name="")
        return hashlib.sha256(msgspec.json.encode(nameless, order="sorted")).hexdigest()[:12]

    @property
    def needs_copy(self) -> bool:
        """Whether documents have to be cut or embedded anew."""
        return self.embedding is not None or self.cuts

    @property
    def cuts(self) -> bool:
        return self.chunking != ChunkingTerms()

    @property
    def parts(self) -> tuple[str, ...]:
        """Names of what is changed, for the audit."""
        found = {
            "retrieval": self.retrieval != RetrievalTerms(),
            "chunking": self.cuts,
            "template": self.template is not None,
            "generation": self.generation is not None,
            "embedding": self.embedding is not None,
        }
        return tuple(name for name, changed in found.items() if changed)

    def over(self, contract: Contract) -> Contract:
        """`contract` with what is changed of it. The template, and which model serves, are no words of a contract."""
        generation = contract.generation
        if self.generation is not None:
            generation = msgspec.structs.replace(generation, pools=list(self.generation.pools), models=None)
        return msgspec.structs.replace(
            contract,
            retrieval=_over(self.retrieval, contract.retrieval),
            chunking=_over(self.chunking, contract.chunking),
            generation=generation,
        )


def read_change(path: Path) -> Change:
    """The change in a TOML file. Raises `InvalidInput` naming the file, or the key."""
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidInput("the change cannot be read", item=str(path), remedy=str(error.strerror)) from None
    except (ValueError, RecursionError):
        raise InvalidInput("the change is not TOML", item=str(path), remedy=_REMEDY) from None
    return check_change(found, path.parent)


def check_change(found: dict[str, Any], folder: Path) -> Change:
    """`found` as a change; a template's `file` is looked for in `folder`. Raises `InvalidInput`."""
    try:
        change = msgspec.convert(found, Change)
    except msgspec.ValidationError as error:
        reason, _, where = str(error).partition(" - at `$.")
        raise InvalidInput(
            reason[:1].lower() + reason[1:], item=where.rstrip("`") or "change", remedy=_REMEDY
        ) from None
    if change.template is not None:
        change = msgspec.structs.replace(change, template=_with_text(change.template, folder))
    if not change.parts:
        raise InvalidInput("it changes nothing", item="change", remedy=_REMEDY)
    if change.generation is not None and not change.generation.pools:
        raise InvalidInput("it names no pool", item="generation.pools", remedy=_REMEDY)
    return change


def _with_text(template: TemplateChange, folder: Path) -> TemplateChange:
    if (template.system is None) is (template.file is None):
        raise InvalidInput("give either the text or a file", item="template", remedy=_REMEDY)
    text = template.system
    if template.file is not None:
        try:
            # One character more than a template may have, so that a longer one is refused for its length.
            with (folder / template.file).open(encoding="utf-8") as file:
                text = file.read(4 * MAX_SYSTEM)
        except (OSError, UnicodeDecodeError):
            raise InvalidInput(
                "the text of the template cannot be read", item="template.file", remedy="give a UTF-8 text file"
            ) from None
    return TemplateChange(name=template.name, system=checked(template.name, text or ""))


def changed_in(terms: Terms) -> dict[str, Any]:
    """What `terms` say otherwise than terms that say nothing."""
    nothing = type(terms)()
    return {name: value for name, value in msgspec.structs.asdict(terms).items() if value != getattr(nothing, name)}


def _over(own: Terms, under: Terms) -> Terms:
    given = changed_in(own)
    return msgspec.structs.replace(under, **given) if given else under
