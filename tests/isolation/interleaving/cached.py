"""A process whose answers say what made them: `python -m ...cached DATA_DIR URL STORE`, moved as `process` is.

An answer bears the revisions of model, adapter and template, and the document its version; so a stale one shows
itself. Changes of the configuration concern one process alone, as its restart would.
"""

from __future__ import annotations

import dataclasses
import re
import secrets
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

from cache.openings import open_template
from cache.policy import CachePolicy, TemplatePolicy
from cache.stores.local import LocalStore
from cache.stores.port import CacheStore
from cache.stores.selector import Selector
from generation.generator import Delta as Said
from generation.generator import ModelIdentity, Piece
from generation.prompt import Prompt, Templates
from generation.routing import OneRoute
from retrieval.answer import answer
from retrieval.question import Delta, Done, Question
from tenancy import directory, pauses
from tenancy.errors import StrongroomError
from tenancy.identity import Role
from tests.isolation.interleaving import process
from tests.isolation.interleaving.process import DOCUMENT, TENANT, Process, Watched

TEXT = "The notice period is three months in version {}."
_TEMPLATE = re.compile(r"template (\w+)\.")


class Marked(Watched):
    """Begins every answer with what made it."""

    def __init__(self, model: str, adapter: str) -> None:
        super().__init__()
        self._identity = ModelIdentity("extractive", model, "words", adapter or None)

    @property
    def identity(self) -> ModelIdentity:
        return self._identity

    async def generate(
        self, prompt: Prompt, *, salt: str, request_id: str, max_tokens: int, deadline: float
    ) -> AsyncGenerator[Piece, None]:
        (template,) = _TEMPLATE.findall(prompt.messages[0].content)
        yield Said(f"{mark(self._identity.revision, self._identity.adapter or '', template)} ")
        inner = super().generate(prompt, salt=salt, request_id=request_id, max_tokens=max_tokens, deadline=deadline)
        async with aclosing(inner) as pieces:
            async for piece in pieces:
                yield piece


def _redis_store(where: str, policy: CachePolicy) -> CacheStore:
    """`where`: the address and the file of the password, with a space between."""
    from cache.stores.redis import RedisStore
    from cache.stores.redis_link import Link
    from tenancy.redis_settings import RedisSettings

    url, _, password_file = where.partition(" ")
    # Patient: the machine may be busy, and a store that is away would be a miss.
    settings = RedisSettings(url=url, password_file=password_file, timeout_s=20.0, connect_timeout_s=20.0)
    return RedisStore(Link(settings), policy)


def mark(model: str, adapter: str, template: str) -> str:
    return f"made by {model}/{adapter}/{template}:"


class CachedProcess(Process):
    def __init__(self, data_dir: Path, url: str, store: str) -> None:
        super().__init__(data_dir, url)
        policy = CachePolicy(template=TemplatePolicy(probation=0, shadow=0.0))
        self.store: CacheStore = LocalStore(policy) if store == "local" else _redis_store(store, policy)
        self.configuration = {"model": "m1", "adapter": "", "template": "t1"}
        self.configure()
        self.changes = process.CHANGES | CHANGES

    def configure(self, **changed: str) -> None:
        """From the next question on; one under way goes on with what it began with."""
        self.configuration |= changed
        model, adapter, template = (self.configuration[name] for name in ("model", "adapter", "template"))
        self.path.path = dataclasses.replace(
            self.path.path,
            cache=self.store,
            routes=OneRoute(Marked(model, adapter)),
            templates=Templates({"default": f"Answer from the sources alone, by template {template}."}),
        )

    async def _question(self, task: int, do: str, key: str, query: str, cache: str = "default") -> None:
        process.begin(task)
        path, request = self.path.path, secrets.token_hex(16)
        shown, entry, kind, refused = "", None, None, None
        try:
            principal = self.authenticator.authenticate(key, "192.0.2.1")
            question = Question(query, request, cache=cache)  # type: ignore[arg-type]
            async with aclosing(answer(path, principal, question)) as events:
                async for event in events:
                    if isinstance(event, Delta):
                        shown += event.text
                    elif isinstance(event, Done):
                        shown += repr(event.answer)
                        entry, kind = event.answer.cache.cached_from, event.answer.cache.kind
        except StrongroomError as error:
            refused = error.code
        self._done(task, shown=shown, entry=entry, kind=kind, refused=refused)

    def _change(self, task: int, do: str, how: str, **given: Any) -> None:
        process.begin(task)
        try:
            self._done(task, found=self.changes[how](self, do == "grant", **given))  # type: ignore[arg-type]
        except StrongroomError as error:
            self._done(task, refused=str(error))


def _update(process: CachedProcess, grant: bool, version: int) -> None:
    process.path.put(process.handle, DOCUMENT, TEXT.format(version), "group:staff")


def _delete(process: CachedProcess, grant: bool, version: int) -> None:
    if grant:
        _update(process, grant, version)
    else:
        from indexing.documents import delete_document

        delete_document(process.handle, DOCUMENT, 0.0)


def _setting(name: str, usual: str, other: str) -> Callable[[CachedProcess, bool], None]:
    def change(process: CachedProcess, grant: bool) -> None:
        process.configure(**{name: usual if grant else other})

    return change


def _purge(process: CachedProcess, grant: bool) -> list[str]:
    """The ids of what an operator removed."""
    entries = [] if grant else [entry.id for entry in process.store.inspect(process.handle, limit=1000)]
    if not grant:
        process.store.invalidate(process.handle, Selector(everything=True))
    pauses.reached("committed")
    return entries


def _asker(process: CachedProcess, grant: bool) -> str | list[str]:
    """Delete bo; the ids of the entries that were bo's. Granting gives the key of a new bo."""
    if grant:
        key = process.tenants.create_key(TENANT, "bo", [Role.READER], groups=["team"])
        return key.text
    with process.handle.writing() as view:
        user = directory.find_user(view, "bo")
        assert user is not None
        directory.delete_user(view, "bo")
    return [entry.id for entry in process.store.inspect(process.handle, limit=1000, selector=Selector(user=user))]


def _opening(process: CachedProcess, grant: bool) -> None:
    with process.handle.writing() as view:
        open_template(view, "default", threshold=0.9, opened_by="operator", reason="orders", now=0.0)


CHANGES: dict[str, Callable[..., Any]] = {
    "opening": _opening,
    "update": _update,
    "document": _delete,
    "model": _setting("model", "m1", "m2"),
    "adapter": _setting("adapter", "", "a2"),
    "template": _setting("template", "t1", "t2"),
    "purge": _purge,
    "asker": _asker,
}

if __name__ == "__main__":
    CachedProcess(Path(sys.argv[1]), sys.argv[2], sys.argv[3]).run()
