"""A tenant's own prompt templates, in versions: what its instructions to the model are, beside the deployment's.

The newest version that was not withdrawn holds; a name without one is looked up among the deployment's
(`[generation.templates]` and the built-in `default`). Everything is read in the view of the question, so that a change
holds from the next question on in every process. The text is operators' text, but it is checked like any other: one
that spells a chat template's control tokens, or the delimiters of sources, would blur what is data and what is not.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from typing import Final

from sqlalchemy import bindparam, func, insert, select, update

from generation.prompt import Template, Templates
from tenancy.errors import Conflict, InvalidInput, NotFound, Unavailable
from tenancy.prepared import Prepared
from tenancy.schema import templates
from tenancy.tenant import ReadView, WriteView
from tenancy.types import Text

DEFAULT: Final = "default"
MAX_SYSTEM: Final = 16_000
"""Characters of a template."""

_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
# Tags of any kind, of chat templates and of this product's prompts, and tokens in brackets such as [INST].
_TOKENS: Final = re.compile(r"<\s?[A-Za-z/|｜!_<\[]|[|｜]>|\[\s*/?\s*[gs]?[A-Z_]{2,}\s*\]")
_CURRENT: Final = Prepared(
    select(templates.c.system)
    .where(templates.c.name == bindparam("template", type_=Text), templates.c.withdrawn.is_(None))
    .order_by(templates.c.number.desc())
    .limit(1)
)


@dataclass(frozen=True, slots=True)
class Version:
    """One version of a tenant's template. Times are UTC epoch seconds."""

    name: str
    number: int
    system: str
    created: float
    withdrawn: float | None

    @property
    def revision(self) -> str:
        """As the audit and the cache name it."""
        return Template(self.name, self.system).revision


@dataclass(frozen=True, slots=True)
class Offered:
    """A template that questions of this tenant may name; `own` where it is the tenant's."""

    template: Template
    own: bool
    default: bool


def resolve(view: ReadView, deployment: Templates, wanted: str | None = None) -> Template:
    """The template `wanted`; without a wish the contract's, else `default`.

    Raises `NotFound` for a wish that cannot be met, `Unavailable` where it is the contract that names an absent one.
    """
    agreed = view.tenant.contract.generation.template
    name = wanted or agreed or DEFAULT
    rows = view.rows(_CURRENT, {"template": name})
    if rows:
        return Template(name, str(rows[0][0]))
    try:
        return deployment.get(name)
    except NotFound:
        if wanted is not None:
            raise
        raise Unavailable(
            "the template that the tenant's contract names does not exist",
            item=name,
            remedy="add it with `strongroom template add`, or change the contract",
        ) from None


def offered(view: ReadView, deployment: Templates) -> tuple[Offered, ...]:
    """Every template that this tenant's questions may name, by name."""
    agreed = view.tenant.contract.generation.template or DEFAULT
    own = {version.name: version for version in versions(view) if version.withdrawn is None}
    found = []
    for name in sorted({*own, *deployment.names()}):
        template = Template(name, own[name].system) if name in own else deployment.get(name)
        found.append(Offered(template, name in own, name == agreed))
    return tuple(found)


def versions(view: ReadView, name: str | None = None) -> tuple[Version, ...]:
    """The tenant's versions, of `name` or of all, the newest of a name last."""
    query = select(templates).order_by(templates.c.name, templates.c.number)
    if name is not None:
        query = query.where(templates.c.name == name)
    return tuple(
        Version(row.name, row.number, row.system, row.created, row.withdrawn) for row in view.execute(query).all()
    )


def names_of(view: ReadView, deployment: Templates) -> dict[str, str]:
    """The template's name by revision: of the deployment's, and of every version that the tenant ever had."""
    found = {deployment.get(name).revision: name for name in deployment.names()}
    return found | {one.revision: one.name for one in versions(view)}


def version(view: ReadView, name: str, number: int | None = None) -> Version:
    """The version `number`, or the one that holds. Raises `NotFound`."""
    found = [one for one in versions(view, name) if (one.withdrawn is None if number is None else one.number == number)]
    if not found:
        raise NotFound("the tenant has no such template", item=name[:100], remedy="`strongroom template list`")
    return found[-1]


def add(view: WriteView, name: str, system: str, now: float) -> Version:
    """Store `system` as the newest version of `name`; the present one where that is the same text.

    Raises `InvalidInput` for a name or text that cannot be a template.
    """
    text = checked(name, system)
    known = versions(view, name)
    holding = [one for one in known if one.withdrawn is None]
    if holding and holding[-1].system == text:
        return holding[-1]
    newest = view.execute(select(func.max(templates.c.number)).where(templates.c.name == name)).scalar_one()
    added = Version(name, (newest or 0) + 1, text, now, None)
    view.execute(insert(templates).values(name=name, number=added.number, system=text, created=now))
    return added


def withdraw(view: WriteView, deployment: Templates, name: str, number: int | None, now: float) -> tuple[int, ...]:
    """Withdraw one version, so that the one before it holds again, or every version of `name`; returns the numbers.

    Raises `NotFound`, and `Conflict` where the tenant's contract names a template that there would be none of.
    """
    standing = [one.number for one in versions(view, name) if one.withdrawn is None]
    chosen = [one for one in standing if number in (None, one)]
    if not chosen:
        raise NotFound("the tenant has no such template", item=name[:100], remedy="`strongroom template list`")
    left = len(chosen) < len(standing) or name in deployment.names()
    if not left and view.tenant.contract.generation.template == name:
        raise Conflict(
            "the tenant's contract names this template, and none would be left",
            item=name,
            remedy="change the contract first, or add another version",
        )
    view.execute(
        update(templates).where(templates.c.name == name, templates.c.number.in_(chosen)).values(withdrawn=now)
    )
    return tuple(chosen)


def checked(name: str, system: str) -> str:
    """`system` without white space around it. Raises `InvalidInput`; no message quotes the text."""
    if not _NAME.fullmatch(name):
        raise InvalidInput(
            "a template's name is 1 to 63 of a-z 0-9 _ - and begins with a letter or digit", item=name[:100]
        )
    text = system.strip()
    if not 1 <= len(text) <= MAX_SYSTEM:
        raise InvalidInput(f"a template has 1 to {MAX_SYSTEM:,} characters, not {len(text):,}", item=name)
    for line, content in enumerate(text.split("\n"), 1):
        if any(unicodedata.category(sign) in {"Cc", "Cf", "Cs", "Zl", "Zp"} and sign != "\t" for sign in content):
            raise InvalidInput(
                f"line {line} holds a control character or a lone surrogate", item=name, remedy="remove it"
            )
        if _TOKENS.search(content):
            raise InvalidInput(
                f"line {line} holds a tag or a control token, which a model may take for the end of its instructions",
                item=name,
                remedy="write <...>, <|...|> and [ABC] in other words; what delimits sources is explained to the model",
            )
    return text
