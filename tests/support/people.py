"""A tenant for tests, filled through the product's own functions."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import delete, insert, select

from tenancy import directory, schema
from tenancy.acl import AccessList, set_access_list, write_access_list
from tenancy.control import Tenants
from tenancy.domain import PermissionDomain, permission_domain
from tenancy.identity import Authenticator, Principal, Role
from tenancy.tenant import TenantHandle

NOW = 1_764_430_000.0


class Company:
    """One tenant with users, groups and bare document rows (no parsing, no embedding)."""

    def __init__(self, tenants: Tenants, authenticator: Authenticator, name: str) -> None:
        self.tenants = tenants
        self.name = name
        tenants.create(name)
        self._authenticator = authenticator
        self.handle: TenantHandle = tenants.open(authenticator.operator(name))

    def principal(self, user: str, *roles: Role, groups: Iterable[str] = ()) -> Principal:
        """`user` with a real API key, authenticated by it."""
        minted = self.tenants.create_key(self.name, user, roles or (Role.READER,), groups=list(groups))
        return self._authenticator.authenticate(minted.text, "192.0.2.1")

    def member(self, group: str, *names: str) -> None:
        with self.handle.writing() as view:
            directory.add_members(view, group, names, NOW)

    def leave(self, group: str, *names: str) -> None:
        with self.handle.writing() as view:
            directory.remove_members(view, group, names)

    def document(
        self, name: str, *, allow: Iterable[str] = (), deny: Iterable[str] = (), version: str = "sha256:1"
    ) -> int:
        """Insert or replace a document of one chunk; returns its id."""
        with self.handle.writing() as view:
            view.execute(delete(schema.documents).where(schema.documents.c.name == name))
            document_id = view.execute(
                insert(schema.documents)
                .values(
                    name=name, version=version, title=name, media_type="text/plain", metadata={}, origin="test",
                    warnings=[], updated=NOW,
                )
                .returning(schema.documents.c.id)
            ).scalar_one()  # fmt: skip
            view.execute(
                insert(schema.chunks).values(
                    document_id=document_id, ordinal=0, start=0, end=len(name), heading=None, text=name,
                    terms=b"",
                )
            )  # fmt: skip
            write_access_list(view, document_id, AccessList.of(allow, deny), NOW)
            view.bump_corpus(document_id)
        return int(document_id)

    def access(self, name: str, *, allow: Iterable[str] = (), deny: Iterable[str] = ()) -> None:
        with self.handle.writing() as view:
            found = view.execute(select(schema.documents.c.id).where(schema.documents.c.name == name)).scalar_one()
            set_access_list(view, int(found), AccessList.of(allow, deny), NOW)

    def domain(self, principal: Principal) -> PermissionDomain:
        with self.handle.reading() as view:
            return permission_domain(principal, view)
