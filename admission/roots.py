"""Signed root ids: one budget for all calls of an agent's job, whichever of its parts makes them.

A root is minted for one user, with a number of calls, tokens, micro-units, requests at one time, and an end. What it
may use stands in the id itself, under a MAC; what it has used is in the counters. A child is minted from its parent and
draws on it, and on all above: a tree never uses more than its root may, however it divides that.

    sr_root.<nodes, root first, base64url JSON>.<HMAC-SHA256 under a key of the tenant, base64url>

The MAC covers tenant and user, which do not stand in the id: another's id is to its finder what an invented one is. A
root gives nothing: its requests draw on their user, tenant and key as well, so that minting many frees nobody.
"""

from __future__ import annotations

import base64
import hmac
import secrets
from typing import Annotated, Final

import msgspec

from admission.limits import Budget, Draw, Limits
from admission.scopes import Scope, root_scope
from tenancy.errors import Forbidden, InvalidInput
from tenancy.keys import keyed_hash

PREFIX: Final = "sr_root."
ID_PREFIX: Final = "root_"
"""Minted ids begin with it; a caller's own id of a conversation may not."""
DEEPEST: Final = 8
"""Nodes from a root to its furthest descendant."""
MAX_LENGTH: Final = 4_096
"""Characters of a signed id."""
_PURPOSE: Final = "root-1"

Amount = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


class RootRefused(Forbidden):
    """A root id that is not one of this user's, or whose time is over."""

    code = "root-refused"


class RootRequired(Forbidden):
    """A request outside of any root, where the deployment permits none."""

    code = "root-required"


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """What a root may use in its life; `None` is no bound of its own. `until` is UTC epoch seconds."""

    calls: int | None = None
    tokens: int | None = None
    money: int | None = None
    parallel: int | None = None
    until: float

    def within(self, other: Terms) -> Terms:
        """These, none of them beyond the `other`'s."""
        return Terms(
            calls=_less(self.calls, other.calls),
            tokens=_less(self.tokens, other.tokens),
            money=_less(self.money, other.money),
            parallel=_less(self.parallel, other.parallel),
            until=min(self.until, other.until),
        )


class Node(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One budget of a tree, as it stands in a signed id."""

    id: str
    calls: Amount | None
    tokens: Amount | None
    money: Amount | None
    parallel: Amount | None
    until: float

    def draw(self, tenant_id: str, now: float) -> Draw:
        """What a request of this node draws on it; its deadline is the end of the node."""
        return Draw(
            root_scope(tenant_id, self.id),
            Limits(concurrent=self.parallel, deadline_s=max(0.001, self.until - now)),
            Budget(self.calls, self.tokens, self.money),
            self.until,
        )

    @property
    def terms(self) -> Terms:
        return Terms(calls=self.calls, tokens=self.tokens, money=self.money, parallel=self.parallel, until=self.until)


class Root(msgspec.Struct, frozen=True):
    """A root, or a child of one, that was minted here: `nodes` from the top of its tree down to itself."""

    nodes: tuple[Node, ...]

    @property
    def id(self) -> str:
        return self.nodes[-1].id

    @property
    def tree(self) -> str:
        """The id of the root at the top, by which the audit groups all requests below it."""
        return self.nodes[0].id

    @property
    def parent(self) -> str | None:
        return self.nodes[-2].id if len(self.nodes) > 1 else None

    @property
    def branch(self) -> str:
        """The ids from the top down, with blanks between them; for the record of a request."""
        return " ".join(node.id for node in self.nodes)

    @property
    def terms(self) -> Terms:
        return self.nodes[-1].terms

    def scopes(self, tenant_id: str) -> tuple[Scope, ...]:
        return tuple(root_scope(tenant_id, node.id) for node in self.nodes)

    def draws(self, tenant_id: str, now: float) -> tuple[Draw, ...]:
        """What a request draws on: the node itself first, then all above it. `now` is UTC epoch seconds."""
        return tuple(node.draw(tenant_id, now) for node in reversed(self.nodes))


def minted(terms: Terms, parent: Root | None = None) -> Root:
    """A new root, or a child of `parent` with no more than that may use. Raises `InvalidInput` below `DEEPEST`."""
    above = () if parent is None else parent.nodes
    if len(above) >= DEEPEST:
        raise InvalidInput(f"a tree of roots is at most {DEEPEST} deep", item="parent", remedy="use the parent itself")
    given = terms if parent is None else terms.within(parent.terms)
    node = Node(ID_PREFIX + secrets.token_hex(16), given.calls, given.tokens, given.money, given.parallel, given.until)
    return Root((*above, node))


def signed(root: Root, key: bytes, tenant_id: str, user_id: str) -> str:
    """The id as its user carries it. `key` is one of the tenant's, kept as long as its audit log."""
    body = _encoded(msgspec.json.encode(root.nodes))
    return f"{PREFIX}{body}.{_encoded(_mac(key, tenant_id, user_id, body))}"


def read(text: str, key: bytes, tenant_id: str, user_id: str, now: float) -> Root:
    """The root that a signed id is of. Raises `RootRefused` for one that was not minted for this user of this tenant,
    and for one that is over at `now` (UTC epoch seconds). Nothing of it is read before its MAC was compared.
    """
    body, found, mac = text.removeprefix(PREFIX).partition(".")
    genuine = (
        text.startswith(PREFIX)
        and len(text) <= MAX_LENGTH
        and text.isascii()
        and bool(found)
        and hmac.compare_digest(mac, _encoded(_mac(key, tenant_id, user_id, body)))
    )
    if not genuine:
        raise RootRefused(
            "this root id was not minted for this user", item="root", remedy="mint one with POST /v1/roots"
        )
    root = Root(msgspec.json.decode(_decoded(body), type=tuple[Node, ...]))
    if min(node.until for node in root.nodes) <= now:
        raise RootRefused("the time of this root is over", item="root", remedy="mint another with POST /v1/roots")
    return root


def require_own_id(root: str | None) -> None:
    """Refuse a caller's own id of a conversation that reads as if it was minted here. Raises `InvalidInput`."""
    if root is not None and root.startswith((ID_PREFIX, PREFIX)):
        raise InvalidInput(
            "a minted root is no id of one's own", item="root", remedy="send it in the header Strongroom-Root"
        )


def _mac(key: bytes, tenant_id: str, user_id: str, body: str) -> bytes:
    return keyed_hash(key, _PURPOSE, tenant_id, user_id, body)


def _less(own: int | None, other: int | None) -> int | None:
    return min((number for number in (own, other) if number is not None), default=None)


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _decoded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
