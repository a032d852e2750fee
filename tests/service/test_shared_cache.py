"""One Redis for several service processes: hits and invalidations are shared, and the end of a tenant reaches it."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cache.stores.port import CacheStore
from service.cache_check import examine, require_fit
from service.deletion import CACHE_SERVER, delete_tenant, drop_unreadable, sweep_collections
from service.settings import Settings, load_settings
from service.wiring import cache_store
from tenancy.deletion import verify
from tenancy.errors import InvalidInput, Unavailable
from tenancy.identity import Role
from tests.service.house import MASTER, House
from tests.service.test_server import command
from tests.service.test_two_servers import QUESTION, TEXT, Pair, pair_of
from tests.support.redis_server import RedisServer


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    made = RedisServer(tmp_path / "redis")
    made.start()
    yield made
    made.kill()


def variables(server: RedisServer) -> dict[str, str]:
    return {
        "STRONGROOM_CACHE__STORE": "redis",
        "STRONGROOM_CACHE__REDIS__URL": server.url,
        "STRONGROOM_CACHE__REDIS__PASSWORD_FILE": str(server.password_file),
        "STRONGROOM_CACHE__REDIS__TIMEOUT_S": "5",
        "STRONGROOM_CACHE__REDIS__RETRY_S": "0.05",
    }


@pytest.fixture
def house(folder: Path, server: RedisServer) -> Iterator[House]:
    made = House(folder, **variables(server))
    with made.client:
        made.put("acme", "notice.md", TEXT, allow=["tenant"])
        yield made
    made.close()


def settings_of(server: RedisServer, **changes: str) -> Settings:
    return load_settings(environment={**variables(server), **changes})


def asked(house: House, tenant: str = "acme") -> str:
    response = house.post("/v1/answers", house.key(tenant, "ana"), QUESTION)
    assert response.status_code == 200, response.text
    return str(response.json()["cache"]["status"])


def keys(server: RedisServer, tenant_id: str) -> list[bytes]:
    with server.client() as client:
        return sorted(client.keys(f"*{tenant_id}*"))


@pytest.mark.slow
def test_two_service_processes_share_hits_and_invalidations(server: RedisServer, tmp_path: Path) -> None:
    with pair_of(tmp_path, more=variables(server)) as pair:
        pair.control.tenants.create("acme")
        loader, ana = pair.key("loader", Role.INGEST), pair.key("ana")
        admin = pair.key("root", Role.ADMIN)
        document = {"text": TEXT, "allow": ["tenant"], "deny": []}
        one, two = pair.clients
        assert one.put("/v1/documents/notice.md", json=document, headers=loader).status_code == 200
        assert [status(pair, n, ana) for n in (0, 1, 0, 1)] == ["miss", "hit", "hit", "hit"]
        entry = served(pair, 1, ana)["cached_from"]
        assert entry == served(pair, 0, ana)["cached_from"]

        # Whatever either of them is told holds in both at the next question.
        assert two.request("DELETE", "/v1/cache/entries", params={"entry": entry}, headers=admin).status_code == 200
        assert [status(pair, n, ana) for n in (0, 1)] == ["miss", "hit"]
        assert two.put(
            "/v1/documents/notice.md", json={**document, "text": TEXT + " Or four."}, headers=loader
        ).is_success
        assert [status(pair, n, ana) for n in (0, 1)] == ["miss", "hit"]
        done = command(pair.environment, "cache", "invalidate", "--tenant", "acme", "--all", "--json")
        assert json.loads(done.stdout)["removed"] >= 1, done.stderr
        assert [status(pair, n, ana) for n in (1, 0)] == ["miss", "hit"]

        # Without Redis both answer afresh, and nobody sees an error.
        server.kill()
        assert {status(pair, n, ana) for n in (0, 1, 0, 1)} == {"miss"}
        told = one.get("/healthz/ready").json()
        assert told.pop("cache_failures") >= 2
        assert (told["status"], told["engines_away"], told["cache_away"]) == ("degraded", 0, True)
        server.start()
        answers = [status(pair, n % 2, ana) for n in range(2)]
        while "hit" not in answers[-2:]:
            answers += [status(pair, 0, ana), status(pair, 1, ana)]
        assert one.get("/healthz/ready").status_code == 200

        pair.control.tenants.delete("acme")
        assert pair.statuses(ana) == [401, 401]


def served(pair: Pair, number: int, key: dict[str, str]) -> dict[str, Any]:
    reply = pair.clients[number].post("/v1/answers", json=QUESTION, headers=key)
    assert reply.status_code == 200, reply.text
    assert "three months" in reply.json()["answer"]
    found: dict[str, Any] = reply.json()["cache"]
    return found


def status(pair: Pair, number: int, key: dict[str, str]) -> str:
    return str(served(pair, number, key)["status"])


def end(house: House, store: CacheStore) -> dict[str, Any]:
    control = house.services.control
    return delete_tenant(control, control.authenticator.operator("acme"), {}, store)


def test_the_certificate_of_a_deleted_tenant_covers_its_keys_at_redis(house: House, server: RedisServer) -> None:
    assert [asked(house), asked(house)] == ["miss", "hit"]
    house.put("globex", "notice.md", TEXT, allow=["tenant"])
    assert [asked(house, "globex"), asked(house, "globex")] == ["miss", "hit"]
    tenant_id = house.services.control.authenticator.operator("acme").tenant_id
    assert len(keys(server, tenant_id)) > 5
    certificate = end(house, house.services.path.cache)
    assert certificate["destroyed"]["cache_entries"]["count"] == 1
    gone = {"engine": CACHE_SERVER, "physical": tenant_id}
    assert certificate["destroyed"]["collections"] == {"dropped": [gone], "pending": []}
    assert keys(server, tenant_id) == [f"sr:{{{tenant_id}}}:state".encode()]
    assert asked(house, "globex") == "hit"
    # One of the same name begins empty, under an id of its own.
    control = house.services.control
    control.tenants.create("acme")
    again = control.authenticator.operator("acme")
    assert again.tenant_id != tenant_id
    assert house.services.path.cache.stats(control.tenants.open(again)).entries == 0


def test_where_redis_is_away_the_certificate_says_so_and_a_server_finishes_it(
    house: House, server: RedisServer, folder: Path
) -> None:
    assert asked(house) == "miss"
    control, store = house.services.control, house.services.path.cache
    tenant_id = control.authenticator.operator("acme").tenant_id
    before = keys(server, tenant_id)
    server.pause()
    try:
        hasty = cache_store(settings_of(server, STRONGROOM_CACHE__REDIS__TIMEOUT_S="0.2"))
        certificate = end(house, hasty)
    finally:
        server.resume()
        hasty.shutdown()
    left = {"engine": CACHE_SERVER, "physical": tenant_id, "reason": "unavailable"}
    assert certificate["destroyed"]["collections"]["pending"] == [left]
    assert certificate["destroyed"]["cache_entries"] == {"unreadable": "unavailable"}
    assert verify(certificate, base64.b64decode(control.tenants.public_key))
    assert keys(server, tenant_id) == before
    assert sweep_collections(control, {}, store) == [tenant_id]
    assert keys(server, tenant_id) == [f"sr:{{{tenant_id}}}:state".encode()]
    assert sweep_collections(control, {}, store) == []


def test_a_new_key_of_the_tenant_leaves_nothing_unreadable_behind(house: House, server: RedisServer) -> None:
    assert [asked(house), asked(house)] == ["miss", "hit"]
    control = house.services.control
    tenant_id = control.authenticator.operator("acme").tenant_id
    control.tenants.rotate_key("acme")
    assert asked(house) == "miss"
    assert drop_unreadable(control, "acme")
    assert {key.rpartition(b":")[2] for key in keys(server, tenant_id)} == {b"state"}
    assert [asked(house), asked(house)] == ["miss", "hit"]


def test_commands_show_repair_and_count_what_is_at_redis(house: House, server: RedisServer, folder: Path) -> None:
    assert [asked(house), asked(house)] == ["miss", "hit"]
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("STRONGROOM_")},
        **variables(server),
        "STRONGROOM_DATA_DIR": str(folder / "data"),
        "STRONGROOM_MASTER_KEY": base64.b64encode(MASTER.value).decode(),
        "STRONGROOM_EMBEDDING__MODEL": "hashing:256",
    }
    shown = json.loads(command(environment, "cache", "stats", "--tenant", "acme", "--json").stdout)
    assert (shown["entries"], shown["store"]["kind"], shown["store"]["available"]) == (1, "redis", True)
    tenant_id = house.services.control.authenticator.operator("acme").tenant_id
    with server.client() as client:
        (entry,) = client.keys(f"sr:{{{tenant_id}}}:e:*")
        client.delete(entry)
    done = command(environment, "cache", "repair", "--tenant", "acme", "--json")
    assert json.loads(done.stdout) == {"removed": 1}, done.stderr
    shown = json.loads(command(environment, "cache", "stats", "--tenant", "acme", "--json").stdout)
    assert (shown["entries"], shown["bytes"]) == (0, 0)
    assert [asked(house), asked(house)] == ["miss", "hit"]
    server.kill()
    away = command(environment, "cache", "stats", "--tenant", "acme", "--json")
    assert away.returncode != 0
    assert "redis" in away.stderr


def test_questions_are_answered_while_redis_is_away(house: House, server: RedisServer) -> None:
    assert [asked(house), asked(house)] == ["miss", "hit"]
    server.kill()
    assert [asked(house) for _ in range(4)] == ["miss"] * 4
    told = house.get("/healthz/ready").json()
    assert (told["status"], told["cache_away"], told["cache_failures"] >= 4) == ("degraded", True, True)
    server.start()
    while asked(house) == "miss":
        pass
    again = house.get("/healthz/ready").json()
    assert (again["status"], again["cache_away"]) == ("ok", False)
    assert again["cache_failures"] >= told["cache_failures"]


def test_a_server_that_is_not_fit_keeps_a_service_from_starting_and_one_that_is_away_does_not(
    server: RedisServer,
) -> None:
    store = cache_store(settings_of(server))
    require_fit(store)
    with server.client() as client:
        client.config_set("maxmemory-policy", "allkeys-lru")
    with pytest.raises(Unavailable, match="noeviction"):
        require_fit(store)
    server.kill()
    other = cache_store(settings_of(server))
    require_fit(other)
    for one in (store, other):
        one.shutdown()


def test_doctor_says_what_is_there_what_is_wrong_and_what_to_do(server: RedisServer) -> None:
    well, found, remedy = examine(settings_of(server))
    assert (well, remedy) == (True, None)
    assert found.startswith("redis 8.")
    with server.client() as client:
        client.config_set("maxmemory-policy", "volatile-lru")
    well, found, remedy = examine(settings_of(server))
    assert (well, "volatile-lru" in found, "noeviction" in str(remedy)) == (False, True, True)
    server.kill()
    assert examine(settings_of(server))[0] is False
    assert examine(load_settings(environment={})) == (True, "local: a file beside each tenant's documents", None)


def test_settings_of_the_cache_are_checked(server: RedisServer) -> None:
    with pytest.raises(InvalidInput, match="memcached"):
        settings_of(server, STRONGROOM_CACHE__STORE="memcached")
    with pytest.raises(InvalidInput, match="passwort_file"):
        settings_of(server, STRONGROOM_CACHE__REDIS__PASSWORT_FILE="x")
    with pytest.raises(InvalidInput, match="plain text"):
        cache_store(settings_of(server, STRONGROOM_CACHE__REDIS__URL="redis://cache.example"))
