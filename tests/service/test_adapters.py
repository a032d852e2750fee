"""Tenants' adapters through commands and the HTTP API: who may use which, and that revocation holds at once."""

from __future__ import annotations

import asyncio
import base64
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from generation.adapters.files import adapter_path, tenant_folder
from generation.adapters.registry import Registered, registered
from retrieval import cached
from service.adapters import add_adapter, revoke_adapter
from service.deletion import ADAPTERS, delete_tenant, sweep_collections
from service.settings import load_settings
from tenancy import directory
from tenancy.contract import Contract, GenerationTerms
from tenancy.deletion import verify
from tenancy.errors import Conflict, InvalidInput, Unavailable
from tenancy.identity import Role
from tenancy.tenant import TenantHandle
from tests.generation.adapter_engine import Engine
from tests.generation.stage import standing
from tests.service.house import House, problem, stream_events
from tests.support.lora import write_adapter
from tests.support.sglang_stand_in import Connection, stream

TENANTS = ("acme", "globex")
QUESTION = {"query": "How long is the notice period?"}
POOL: dict[str, Any] = {
    "kind": "sglang",
    "model": "tiny",
    "revision": "r1",
    "max_adapters": 4,
    "max_adapter_rank": 8,
    "adapter_modules": ["q_proj", "v_proj"],
    "adapter_bases": ["org/tiny-base"],
    "admin_key_file": "",
}


def pools(**made: dict[str, Any]) -> str:
    """The setting generation.pools."""

    def table(pool: dict[str, Any]) -> str:
        return "{" + ", ".join(f"{key} = {json.dumps(value)}" for key, value in (POOL | pool).items()) + "}"

    return "{" + ", ".join(f"{name} = {table(pool)}" for name, pool in made.items()) + "}"


class Works:
    """A house of two tenants with one document each, whose pool is a stand-in that loads adapters."""

    def __init__(self, folder: Path, house: House, engine: Engine, loop: asyncio.AbstractEventLoop) -> None:
        self.folder = folder
        self._loop = loop
        self.house = house
        self.engine = engine
        self.root = folder / "engines"

    def handle(self, tenant: str) -> TenantHandle:
        control = self.house.services.control
        return control.tenants.open(control.authenticator.operator(tenant))

    def add(self, tenant: str, name: str = "voice", *, allow: list[str] | None = None, **made: Any) -> Registered:
        number = len(list(self.folder.glob("source-*")))
        source = self.folder / f"source-{number}"
        made = {"seed": number, **made}
        return add_adapter(
            self.house.settings.generation, self.handle(tenant), name, write_adapter(source, **made), allow=allow
        )

    def revoke(self, tenant: str, name: str = "voice") -> None:
        revoke_adapter(self.house.settings.generation, self.handle(tenant), name)

    def ask(self, tenant: str, user: str = "ana", **body: Any) -> httpx.Response:
        return self.house.post("/v1/answers", self.house.key(tenant, user), {**QUESTION, **body})

    def go_on(self) -> None:
        """Let the engine go on that waits."""
        self._loop.call_soon_threadsafe(self.engine.server.release.set)

    def models(self, tenant: str, user: str = "ana") -> list[str]:
        return [one["id"] for one in self.house.get("/v1/models", self.house.key(tenant, user)).json()["data"]]

    def used(self, tenant: str) -> str | None:
        found: str | None = self.house.events(tenant)[-1]["generation"].get("adapter")
        return found and found.partition("@")[0]


@pytest.fixture
def works(folder: Path, request: pytest.FixtureRequest) -> Iterator[Works]:
    with standing(1) as (servers, loop):
        engine = Engine(servers[0])
        environment = {
            "STRONGROOM_GENERATION__POOLS": pools(main={"replicas": [servers[0].base_url]}),
            "STRONGROOM_GENERATION__ROUTING": '{collection = ["main"]}',
            "STRONGROOM_GENERATION__ADAPTERS_DIR": str(folder / "engines"),
            **getattr(request, "param", {}),
        }
        house = House(folder, **environment)
        with house.client:
            for tenant in TENANTS:
                house.put(tenant, "notice.md", "The notice period is three months.", allow=["tenant"])
            yield Works(folder, house, engine, loop)
            house.client.blocking_portal.call(house.services.path.routes.aclose)
        house.close()


def spoken(connection: Connection, *texts: str) -> list[str]:
    """The lines of a stream that says `texts` in the name of what was asked for."""
    chunk = {"id": "x", "object": "chat.completion.chunk", "model": connection.request.body["model"]}
    choices: list[dict[str, Any]] = [{"index": 0, "delta": {"content": text}} for text in texts]
    choices.append({"index": 0, "delta": {}, "finish_reason": "stop"})
    return [*(f"data: {json.dumps(chunk | {'choices': [choice]})}" for choice in choices), "data: [DONE]"]


NO_CACHE = pytest.mark.parametrize("works", [{"STRONGROOM_CACHE__ENABLED": "false"}], indirect=True)


# Use


@NO_CACHE
def test_each_tenant_has_its_own_under_the_same_name(works: Works) -> None:
    made = {tenant: works.add(tenant) for tenant in TENANTS}
    assert made["acme"].id != made["globex"].id
    for tenant in TENANTS:
        for body in ({"adapter": "voice"}, {"model": "tiny:voice"}, {"model": "tiny:voice", "adapter": "voice"}):
            assert works.ask(tenant, **body).status_code == 200
            assert works.used(tenant) == made[tenant].id
        assert works.ask(tenant).status_code == 200
        assert works.used(tenant) is None
        assert works.models(tenant) == ["tiny", "tiny:voice"]
    asked = [request.body["model"] for request in works.engine.server.generations]
    assert asked == [name for one in made.values() for name in (*[f"tiny:{one.id}"] * 3, "tiny")]


@NO_CACHE
def test_an_adapter_is_named_in_openais_way_as_well(works: Works) -> None:
    made = works.add("acme")
    body = {"model": "tiny:voice", "messages": [{"role": "user", "content": QUESTION["query"]}]}
    assert works.house.post("/v1/chat/completions", works.house.key("acme", "ana"), body).status_code == 200
    assert works.used("acme") == made.id
    found = works.house.post("/v1/chat/completions", works.house.key("globex", "ana"), body)
    assert found.status_code == 404
    assert works.house.get("/v1/models/tiny:voice", works.house.key("acme", "ana")).status_code == 200
    assert works.house.get("/v1/models/tiny:voice", works.house.key("globex", "ana")).status_code == 404


def test_what_is_foreign_absent_revoked_or_not_allowed_looks_the_same(works: Works) -> None:
    foreign = works.add("globex", "theirs")
    works.add("acme", "gone")
    works.revoke("acme", "gone")
    works.add("acme", "closed", allow=["group:legal"])
    names = ("never", "theirs", "gone", "closed", foreign.id, "a b")
    for field, shown in (("adapter", "{}"), ("model", "tiny:{}")):
        said = []
        for name in names:
            found = problem(works.ask("acme", **{field: shown.format(name)}), 404, "not-found")
            assert found.pop("item") == shown.format(name)
            del found["instance"]
            said.append(found)
        assert said == [said[0]] * len(names)
    assert works.models("acme") == ["tiny"]
    assert works.engine.calls == [], "no engine is asked about it"
    events = [event for event in works.house.events("acme") if event["action"] == "answer"]
    assert {event["outcome"] for event in events if event["phase"] == "outcome"} == {"refused"}


@NO_CACHE
def test_labels_hold_from_the_next_question_on(works: Works) -> None:
    works.house.key("acme", "bo", groups=("legal",))
    works.add("acme", allow=["group:legal"])
    assert works.ask("acme", "ana", adapter="voice").status_code == 404
    assert works.house.post(
        "/v1/answers", works.house.key("acme", "bo", groups=("legal",)), {**QUESTION, "adapter": "voice"}
    ).is_success
    assert works.models("acme", "ana") == ["tiny"]
    works.add("acme")
    assert works.ask("acme", "ana", adapter="voice").status_code == 200
    assert works.models("acme", "ana") == ["tiny", "tiny:voice"]


def test_two_wishes_that_differ_are_none(works: Works) -> None:
    works.add("acme", "voice")
    works.add("acme", "other")
    assert works.ask("acme", model="tiny:voice", adapter="other").status_code == 404


def test_a_contract_without_the_pool_is_without_its_adapters(works: Works) -> None:
    works.add("acme")
    assert works.ask("acme", adapter="voice").status_code == 200
    contract = Contract(generation=GenerationTerms(models=["other"]))
    works.house.services.control.tenants.set_contract("acme", contract)
    assert works.ask("acme", adapter="voice").status_code == 503
    assert works.house.get("/v1/models", works.house.key("acme", "ana")).status_code == 503


@NO_CACHE
def test_an_adapter_that_cannot_be_loaded_is_said_and_bothers_nobody_else(works: Works) -> None:
    mine, theirs = works.add("acme"), works.add("globex")
    place = adapter_path(works.root, works.handle("acme").tenant_id, mine.id)
    (place / "adapter_model.safetensors").write_bytes(b"something else")
    found = problem(works.ask("acme", adapter="voice"), 503, "unavailable")
    assert found["detail"] == "the adapter cannot be loaded now"
    assert str(works.root) not in str(found)
    assert works.house.events("acme")[-1]["detail"]["adapter"] == mine.id
    assert works.ask("acme").status_code == 200
    assert works.ask("globex", adapter="voice").status_code == 200
    assert works.engine.calls == [("load", theirs.id)]


# Revocation


@NO_CACHE
def test_revocation_holds_from_the_next_question_although_the_engine_has_it(works: Works) -> None:
    made = works.add("acme")
    assert works.ask("acme", adapter="voice").status_code == 200
    works.revoke("acme")
    assert works.engine.held == [made.id]
    assert works.ask("acme", adapter="voice").status_code == 404
    assert works.models("acme") == ["tiny"]
    assert not adapter_path(works.root, works.handle("acme").tenant_id, made.id).exists()
    again = works.add("acme")
    assert works.ask("acme", adapter="voice").status_code == 200
    assert works.used("acme") == again.id != made.id


@NO_CACHE
@pytest.mark.parametrize("taken", ["adapter", "label"])
@pytest.mark.parametrize("at", ["its first byte", "its end"])
def test_an_answer_ends_where_the_right_to_its_adapter_does(
    works: Works, monkeypatch: pytest.MonkeyPatch, taken: str, at: str
) -> None:
    made = works.add("acme", allow=["group:legal"])
    key = works.house.key("acme", "bo", groups=("legal",))
    begun, looked = threading.Event(), threading.Event()
    routes = works.house.services.path.routes
    real = routes.holds

    def holds(*arguments: Any) -> bool:
        found = real(*arguments)
        looked.set()
        return found

    monkeypatch.setattr(routes, "holds", holds)

    async def waiting(connection: Connection) -> None:
        lines = spoken(connection, *(f"{number} and some more words. " for number in range(40)))
        await connection.begin_stream()
        for number, line in enumerate(lines):
            if number == (0 if at == "its first byte" else 30):
                begun.set()
                await connection.server.release.wait()
            await connection.send(line)
        await connection.end_stream()

    works.engine.server.usual = waiting
    answers: list[httpx.Response] = []
    asking = threading.Thread(
        target=lambda: answers.append(
            works.house.post("/v1/answers", key, {**QUESTION, "adapter": "voice", "stream": True})
        )
    )
    asking.start()
    assert begun.wait(20)
    if at == "its end":
        assert looked.wait(20), "the first words left while the right was there"
    if taken == "adapter":
        works.revoke("acme")
    else:
        with works.handle("acme").writing() as view:
            directory.remove_members(view, "legal", ["user:bo"])
    works.go_on()
    asking.join(30)
    if at == "its first byte":
        problem(answers[0], 409, "revoked")
    else:
        *words, (kind, last) = stream_events(answers[0].text)
        assert (kind, last["code"]) == ("error", "revoked")
        assert {kind for kind, _ in words} == {"delta"}, "words, and nothing that ends an answer"
    event = works.house.events("acme")[-1]
    assert (event["outcome"], event["reason"], event["detail"]["adapter"]) == ("revoked", "adapter", made.id)


# The cache


def test_the_identity_of_an_answer_divides_by_adapter_and_revision(works: Works) -> None:
    from retrieval.plan import composite_identity, make_plan
    from retrieval.question import Question
    from tenancy.domain import permission_domain

    works.add("acme", "one")
    path = works.house.services.path
    principal = works.house.services.control.authenticator.authenticate(works.house.key("acme", "ana"), "192.0.2.1")

    def identity(adapter: str | None) -> Any:
        question = Question(query="What?", request_id="0" * 32, adapter=adapter)
        with works.handle("acme").reading() as view:
            domain = permission_domain(principal, view)
            plan = make_plan(path, domain, view, question)
            return composite_identity(path, path.embedders.of(view), domain, plan)

    found = [identity(None), identity("one")]
    works.add("acme", "two", seed=5)
    works.add("acme", "one", seed=6)
    found += [identity("one"), identity("two")]
    assert len({one.adapter_revision for one in found}) == 4
    assert identity("one") == found[2]


def test_a_hit_does_not_leave_where_its_adapter_is_revoked_meanwhile(
    works: Works, monkeypatch: pytest.MonkeyPatch
) -> None:
    works.add("acme")
    real = cached.look_again

    async def citing(connection: Connection) -> None:
        await stream(connection, spoken(connection, "The notice period is three months [S1]."))

    works.engine.server.usual = citing
    assert works.ask("acme", adapter="voice").json()["cache"]["status"] == "miss"
    assert works.ask("acme", adapter="voice").json()["cache"]["status"] == "hit"
    assert works.ask("acme").json()["cache"]["status"] == "miss", "the base is another model"

    def late(*arguments: Any) -> Any:
        reason = real(*arguments)
        works.revoke("acme")
        return reason

    monkeypatch.setattr(cached, "look_again", late)
    problem(works.ask("acme", adapter="voice"), 409, "revoked")


# What may be registered


@pytest.mark.parametrize(
    ("made", "item", "says"),
    [
        ({"base": "other"}, "base_model_name_or_path", "adapter_bases"),
        ({"revision": "r2"}, "revision", "r1"),
        ({"rank": 16}, "r", "max_adapter_rank"),
        ({"modules": ("q_proj", "up_proj")}, "target_modules", "up_proj"),
    ],
)
def test_an_incompatible_adapter_is_refused_and_leaves_nothing(
    works: Works, made: dict[str, Any], item: str, says: str
) -> None:
    with pytest.raises(InvalidInput, match=says) as caught:
        works.add("acme", **made)
    assert caught.value.item == item
    assert caught.value.remedy
    assert not works.root.exists()
    works.add("acme", base="org/tiny-base", revision="r1", rank=8)


def test_pools_of_other_tenants_take_nothing_of_this_one(works: Works) -> None:
    tenants = works.house.services.control.tenants
    tenants.set_contract("acme", Contract(generation=GenerationTerms(pools=["main"])))
    works.add("acme")
    tenants.set_contract("acme", Contract(generation=GenerationTerms(pools=["other"])))
    with pytest.raises(InvalidInput, match="no pool other"):
        works.add("acme", "second")


def test_a_change_of_the_folder_while_it_is_copied_is_refused(works: Works, monkeypatch: pytest.MonkeyPatch) -> None:
    import service.adapters

    real = service.adapters.copy_in

    def swapping(source: Path, *rest: Any) -> Any:
        found = real(source, *rest)
        write_adapter(works.folder / "swapped", rank=8)
        for name in ("adapter_config.json", "adapter_model.safetensors"):
            (works.folder / "swapped" / name).replace(found[0] / name)
        return found

    monkeypatch.setattr(service.adapters, "copy_in", swapping)
    with pytest.raises(Conflict, match="changed while it was copied"):
        works.add("acme")
    with works.handle("acme").reading() as view:
        assert registered(view) == ()
    assert list((works.root / tenant_folder(works.handle("acme").tenant_id)).iterdir()) == []


def test_what_a_crash_left_goes_with_the_next_change(works: Works) -> None:
    made = works.add("acme")
    owner = works.root / tenant_folder(works.handle("acme").tenant_id)
    (owner / ".0.partial").mkdir()
    (owner / f"ad_{'0' * 32}").mkdir()
    works.add("acme", "other")
    assert len(list(owner.iterdir())) == 2
    # Damaged files are repaired by adding the same again.
    (owner / made.id / "adapter_model.safetensors").write_bytes(b"")
    source = works.folder / "source-0"
    same = add_adapter(works.house.settings.generation, works.handle("acme"), "voice", source)
    assert same.id == made.id
    assert works.ask("acme", adapter="voice").status_code == 200


# The end of a tenant


def test_a_deleted_tenants_adapters_are_gone_and_named_in_its_certificate(works: Works) -> None:
    works.add("acme")
    works.add("globex")
    control, services = works.house.services.control, works.house.services
    acme = works.handle("acme").tenant_id
    principal = control.authenticator.operator("acme")
    certificate = delete_tenant(control, principal, services.engines, services.path.cache)
    destroyed = certificate["destroyed"]
    assert destroyed["adapters"] == {"count": 1}
    assert [file["file"].rpartition("/")[2] for file in destroyed["adapter_files"]] == [
        "adapter_config.json",
        "adapter_model.safetensors",
    ]
    assert destroyed["collections"]["dropped"] == [{"engine": ADAPTERS, "physical": tenant_folder(acme)}]
    assert [path.name for path in works.root.iterdir()] == [tenant_folder(works.handle("globex").tenant_id)]
    assert verify(certificate, base64.b64decode(control.tenants.public_key))
    assert works.ask("globex", adapter="voice").status_code == 200


def test_files_that_could_not_be_removed_are_tried_again(works: Works, monkeypatch: pytest.MonkeyPatch) -> None:
    import service.deletion

    works.add("acme")
    control, services = works.house.services.control, works.house.services
    folder = tenant_folder(works.handle("acme").tenant_id)

    def away(root: Path, name: str) -> None:
        raise Unavailable("the disk is away")

    with monkeypatch.context() as patched:
        patched.setattr(service.deletion, "remove_all", away)
        certificate = delete_tenant(
            control, control.authenticator.operator("acme"), services.engines, services.path.cache
        )
        pending = certificate["destroyed"]["collections"]["pending"]
        assert [(one["engine"], one["physical"]) for one in pending] == [(ADAPTERS, folder)]
    assert (works.root / folder).exists()
    assert sweep_collections(control, services.engines, services.path.cache) == [folder]
    assert not (works.root / folder).exists()


def test_settings_that_cannot_hold_are_refused_by_their_key(folder: Path) -> None:
    for change, item in (
        ({"kind": "openai"}, "generation.pools.main.max_adapters"),
        ({"max_adapter_rank": 0}, "generation.pools.main.max_adapter_rank"),
        ({"adapter_modules": []}, "generation.pools.main.adapter_modules"),
        ({}, "generation.adapters_dir"),
    ):
        with pytest.raises(InvalidInput) as caught:
            House(
                folder / str(len(str(change))),
                STRONGROOM_GENERATION__POOLS=pools(main={"replicas": ["http://127.0.0.1:1"], **change}),
                STRONGROOM_GENERATION__ROUTING='{collection = ["main"]}',
            )
        assert caught.value.item == item


def test_only_readers_ask_with_an_adapter(works: Works) -> None:
    works.add("acme")
    key = works.house.key("acme", "loader", Role.INGEST)
    assert works.house.post("/v1/answers", key, {**QUESTION, "adapter": "voice"}).status_code == 403


@NO_CACHE
def test_a_pool_takes_what_the_settings_say_from_a_reload_on(works: Works) -> None:
    made = [works.add("acme", name) for name in ("one", "two")]

    def reload(**pool: Any) -> None:
        replicas = [works.engine.server.base_url]
        settings = load_settings(
            environment={
                "STRONGROOM_DATA_DIR": works.house.settings.data_dir,
                "STRONGROOM_GENERATION__POOLS": pools(main={"replicas": replicas, **pool}),
                "STRONGROOM_GENERATION__ROUTING": '{collection = ["main"]}',
                "STRONGROOM_GENERATION__ADAPTERS_DIR": str(works.root),
            }
        )

        async def within() -> None:
            works.house.services.reload(settings)

        works.house.client.blocking_portal.call(within)

    reload(max_adapters=1)
    for name in ("one", "two"):
        assert works.ask("acme", adapter=name).status_code == 200
    assert works.engine.held == [made[1].id], "one at a time"
    reload(adapter_modules=["q_proj"])
    assert works.ask("acme", adapter="two").status_code == 404, "no pool has room for its modules any more"
    assert works.models("acme") == ["tiny"]
    reload()
    assert works.models("acme") == ["tiny", "tiny:one", "tiny:two"]
