"""Private adapters on a real SGLang server, through the HTTP API: each tenant its own, and nobody another's."""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from generation.adapters.loading import AdapterLoader
from generation.placement import PooledRoutes
from generation.pool import Pool
from service.adapters import add_adapter, revoke_adapter
from tenancy.identity import Role
from tenancy.tenant import TenantHandle
from tests.generation.prompts import prompt, soon
from tests.service.desk import Desk, serving
from tests.service.house import stream_events
from tests.support.sglang_server import ADMIN_KEY, API_KEY, MODEL, RunningServer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

TENANTS = ("acme", "globex")
QUESTION = "How long is the notice period?"
MODULES = ["q_proj", "k_proj", "v_proj", "o_proj"]


@pytest.fixture(scope="module")
def desk(sglang: RunningServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    """Two tenants with the same document and question; `voice` is a different adapter in each."""
    folder: Path = tmp_path_factory.mktemp("adapters")
    pool = {
        "kind": "sglang",
        "model": MODEL,
        "revision": "r1",
        "replicas": [sglang.base_url],
        "tokenizer": str(sglang.model),
        "context_length": 4096,
        "max_adapters": 2,
        "max_adapter_rank": 8,
        "adapter_modules": MODULES,
        "adapter_bases": ["model"],
        "first_token_s": 120.0,
        "stall_s": 60.0,
    }
    for name, key in (("api_key_file", API_KEY), ("admin_key_file", ADMIN_KEY)):
        (folder / name).write_text(key)
        pool[name] = str(folder / name)
    table = ", ".join(f"{name} = {json.dumps(value)}" for name, value in pool.items())
    limits = {f"STRONGROOM_ADMISSION__{who}__CONCURRENT": "200" for who in ("TENANT", "USER")}
    with serving(
        folder,
        spoken=False,
        STRONGROOM_GENERATION__POOLS=f"{{main = {{{table}}}}}",
        STRONGROOM_GENERATION__ROUTING='{collection = ["main"]}',
        STRONGROOM_GENERATION__ADAPTERS_DIR=str(folder / "engines"),
        STRONGROOM_GENERATION__DEADLINE_S="300",
        STRONGROOM_CACHE__ENABLED="false",
        STRONGROOM_WORKERS__QUEUE="400",
        **limits,
    ) as found:
        for tenant in TENANTS:
            key = found.house.key(tenant, "loader", Role.INGEST)
            stored = httpx.put(
                f"{found.address}/v1/documents/notice.md",
                headers={"Authorization": f"Bearer {key}"},
                json={"text": "The notice period is three months.", "allow": ["tenant"]},
            )
            assert stored.status_code == 200
        yield found


@pytest.fixture
def adapters(desk: Desk, sglang: RunningServer) -> Iterator[dict[str, str]]:
    """The id of `voice` of each tenant; both are taken away afterwards."""
    generation = desk.house.settings.generation
    made = {}
    for tenant, letter in zip(TENANTS, "ab", strict=True):
        source = sglang.model.with_name(f"{sglang.model.name}-lora-{letter}")
        made[tenant] = add_adapter(generation, handle(desk, tenant), "voice", source).id
    yield made
    for tenant in TENANTS:
        with handle(desk, tenant).reading() as view:
            left = view.execute(_ACTIVE).all()
        if left:
            revoke_adapter(generation, handle(desk, tenant), "voice")


def _active() -> Any:
    from sqlalchemy import select

    from tenancy.schema import adapters

    return select(adapters.c.id).where(adapters.c.revoked.is_(None))


_ACTIVE = _active()


def handle(desk: Desk, tenant: str) -> TenantHandle:
    control = desk.house.services.control
    return control.tenants.open(control.authenticator.operator(tenant))


def headers(desk: Desk, tenant: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {desk.house.key(tenant, 'ana')}"}


def ask(desk: Desk, tenant: str, **body: Any) -> httpx.Response:
    body = {"query": QUESTION, "max_tokens": 24, **body}
    return httpx.post(f"{desk.address}/v1/answers", headers=headers(desk, tenant), json=body, timeout=300)


def answer(desk: Desk, tenant: str, **body: Any) -> str:
    response = ask(desk, tenant, **body)
    assert response.status_code == 200, response.text
    return str(response.json()["answer"])


def used(desk: Desk, tenant: str) -> list[str | None]:
    """The adapters in the audit's outcomes of answers, oldest first."""
    events = [event for event in desk.house.events(tenant) if event["phase"] == "outcome"]
    return [event["generation"].get("adapter") for event in events if event.get("generation")]


def engine(sglang: RunningServer, path: str, **body: str) -> httpx.Response:
    admin = {"Authorization": f"Bearer {ADMIN_KEY}"}
    return httpx.post(f"{sglang.base_url}{path}", headers=admin, json=body, timeout=60, trust_env=False)


def loaded(sglang: RunningServer) -> set[str]:
    key = {"Authorization": f"Bearer {API_KEY}"}
    found = httpx.get(f"{sglang.base_url}/v1/models", headers=key, timeout=60, trust_env=False).json()["data"]
    return {model["id"] for model in found}


def offered(desk: Desk, tenant: str) -> list[str]:
    found = httpx.get(f"{desk.address}/v1/models", headers=headers(desk, tenant)).json()["data"]
    return [model["id"] for model in found]


def refusal(response: httpx.Response) -> tuple[int, dict[str, Any]]:
    """A refusal without what is of its own request."""
    return response.status_code, {**response.json(), "instance": None}


def test_each_adapter_changes_its_own_tenants_answer_alone(desk: Desk, adapters: dict[str, str]) -> None:
    base = {tenant: answer(desk, tenant) for tenant in TENANTS}
    own = {tenant: answer(desk, tenant, adapter="voice") for tenant in TENANTS}
    for tenant in TENANTS:
        assert own[tenant] != base[tenant]
        assert answer(desk, tenant, model=f"{MODEL}:voice") == own[tenant]
        assert answer(desk, tenant) == base[tenant]
        assert offered(desk, tenant) == [MODEL, f"{MODEL}:voice"]
        named = [None if one is None else one.partition("@")[0] for one in used(desk, tenant)][-4:]
        assert named == [None, adapters[tenant], adapters[tenant], None]


def test_neither_tenant_reaches_the_others(desk: Desk, adapters: dict[str, str]) -> None:
    foreign = adapters["globex"]
    nothing = refusal(ask(desk, "acme", adapter="a" * 35))
    assert nothing[0] == 404
    for wanted in (foreign, "globex"):
        found = refusal(ask(desk, "acme", adapter=wanted))
        assert (found[0], {**found[1], "item": None}) == (404, {**nothing[1], "item": None})
        assert ask(desk, "acme", model=f"{MODEL}:{wanted}").status_code == 404
        assert ask(desk, "acme", model=wanted).status_code == 404


def test_a_revoked_adapter_says_no_more_although_the_engine_has_it(
    desk: Desk, sglang: RunningServer, adapters: dict[str, str]
) -> None:
    answer(desk, "acme", adapter="voice")
    theirs = answer(desk, "globex", adapter="voice")
    revoke_adapter(desk.house.settings.generation, handle(desk, "acme"), "voice")
    assert adapters["acme"] in loaded(sglang), "the engine keeps it"
    assert refusal(ask(desk, "acme", adapter="voice")) == refusal(ask(desk, "acme", adapter="voice"))
    revoked, absent = (refusal(ask(desk, "acme", adapter=name)) for name in ("voice", "never"))
    assert {**revoked[1], "item": None} == {**absent[1], "item": None}
    assert offered(desk, "acme") == [MODEL]
    assert answer(desk, "globex", adapter="voice") == theirs


def test_a_stream_ends_where_its_adapter_is_revoked(desk: Desk, adapters: dict[str, str]) -> None:
    body = {"query": QUESTION, "max_tokens": 2500, "adapter": "voice", "stream": True}
    desk.forget()
    with httpx.stream(
        "POST", f"{desk.address}/v1/answers", headers=headers(desk, "acme"), json=body, timeout=300
    ) as response:
        text = ""
        for part in response.iter_text():
            if not text:
                revoke_adapter(desk.house.settings.generation, handle(desk, "acme"), "voice")
                revoked = time.monotonic()
            text += part
    print(f"the stream ended {time.monotonic() - revoked:.1f} s after the revocation")
    kind, last = list(stream_events(text))[-1]
    assert (kind, last["code"]) == ("error", "revoked")
    desk.done()
    event = desk.house.events("acme")[-1]
    assert (event["outcome"], event["reason"], event["detail"]["adapter"]) == ("revoked", "adapter", adapters["acme"])


def test_an_engine_that_forgot_an_adapter_is_given_it_again(
    desk: Desk, sglang: RunningServer, adapters: dict[str, str]
) -> None:
    """As after a new start: what we believe to be loaded was never loaded there."""
    assert adapters["acme"] not in loaded(sglang)
    routes = desk.house.services.path.routes
    assert isinstance(routes, PooledRoutes)
    (pool,) = routes.pools
    (replica,) = pool.replicas
    assert isinstance(pool.loader, AdapterLoader)
    answer(desk, "globex", adapter="voice")
    pool.loader._shelves[replica].loaded[adapters["acme"]] = 1
    assert answer(desk, "acme", adapter="voice")
    assert adapters["acme"] in loaded(sglang)


def test_adapters_make_room_for_each_other(desk: Desk, sglang: RunningServer, adapters: dict[str, str]) -> None:
    generation = desk.house.settings.generation
    first = {tenant: answer(desk, tenant, adapter="voice") for tenant in TENANTS}
    same, other = (sglang.model.with_name(f"{sglang.model.name}-lora-{letter}") for letter in "ab")
    made = [
        add_adapter(generation, handle(desk, "acme"), name, source)
        for name, source in (("same", same), ("other", other))
    ]
    try:
        assert answer(desk, "acme", adapter="same") == first["acme"], "the same weights, another adapter"
        assert answer(desk, "acme", adapter="other") not in {first["acme"], answer(desk, "acme")}
        assert {one.id for one in made} <= loaded(sglang)
        assert not set(adapters.values()) & loaded(sglang), "the pool has two at most"
        assert {tenant: answer(desk, tenant, adapter="voice") for tenant in TENANTS} == first
    finally:
        for name in ("same", "other"):
            revoke_adapter(generation, handle(desk, "acme"), name)


def test_a_hundred_mixed_requests_are_answered_with_their_own_adapters(desk: Desk, adapters: dict[str, str]) -> None:
    kinds = [(tenant, adapter) for tenant in TENANTS for adapter in ("voice", None)]
    alone = {kind: answer(desk, kind[0], **({"adapter": kind[1]} if kind[1] else {})) for kind in kinds}
    before = {tenant: len(used(desk, tenant)) for tenant in TENANTS}

    async def one(client: httpx.AsyncClient, tenant: str, adapter: str | None) -> str:
        body = {"query": QUESTION, "max_tokens": 24, **({"adapter": adapter} if adapter else {})}
        found = await client.post(f"{desk.address}/v1/answers", headers=headers(desk, tenant), json=body)
        assert found.status_code == 200, found.text
        return str(found.json()["answer"])

    async def everybody() -> list[str]:
        limits = httpx.Limits(max_connections=100)
        async with httpx.AsyncClient(timeout=600, limits=limits) as client:
            return await asyncio.gather(*(one(client, *kinds[number % 4]) for number in range(100)))

    desk.forget()
    texts = asyncio.run(everybody())
    desk.done(100)
    for tenant in TENANTS:
        named = Counter(None if one is None else one.partition("@")[0] for one in used(desk, tenant)[before[tenant] :])
        assert named == {adapters[tenant]: 25, None: 25}
    for number, text in enumerate(texts):
        others = {alone[kind] for kind in kinds if alone[kind] != alone[kinds[number % 4]]}
        assert text not in others
    same = sum(text == alone[kinds[number % 4]] for number, text in enumerate(texts))
    print(f"{same} of 100 answers are the same to the byte as alone")
    assert same >= 90


async def _refused(pool: Pool, name: str) -> int:
    """What the engine says to a request for an adapter that it does not have."""
    from generation.replica import Request

    asked = Request(prompt=prompt(), salt=secrets.token_hex(32), request_id="r", max_tokens=4, deadline=soon(60))
    body = pool.replicas[0].body(asked, secrets.token_hex(16)) | {"model": f"{MODEL}:{name}"}
    async with httpx.AsyncClient(trust_env=False, timeout=60) as client:
        url = f"{pool.endpoint.base_url}/v1/chat/completions"
        response = await client.post(url, headers={"Authorization": f"Bearer {API_KEY}"}, json=body)
    print(response.status_code, response.text[:300])
    return response.status_code


def test_the_engine_refuses_an_adapter_that_it_never_had(desk: Desk) -> None:
    routes = desk.house.services.path.routes
    assert isinstance(routes, PooledRoutes)
    assert asyncio.run(_refused(routes.pools[0], f"ad_{secrets.token_hex(16)}")) == 400
