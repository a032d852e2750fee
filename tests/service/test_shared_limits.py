"""One Redis for several service processes: limits and budgets hold over all of them together."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from tenancy.contract import check_contract
from tenancy.identity import Role
from tests.service.test_server import command
from tests.service.test_two_servers import QUESTION, TEXT, pair_of
from tests.support.redis_server import RedisServer

pytestmark = pytest.mark.slow


def test_two_service_processes_share_limits(tmp_path: Path) -> None:
    server = RedisServer(tmp_path / "redis")
    server.start()
    more = {
        "STRONGROOM_ADMISSION__STORE": "redis",
        "STRONGROOM_ADMISSION__REDIS__URL": server.url,
        "STRONGROOM_ADMISSION__REDIS__PASSWORD_FILE": str(server.password_file),
        "STRONGROOM_ADMISSION__REDIS__TIMEOUT_S": "5",
    }
    try:
        with pair_of(tmp_path, more=more) as pair:
            contract = check_contract({"admission": {"user": {"requests_per_minute": 5}}})
            pair.control.tenants.create("acme", contract)
            document = {"text": TEXT, "allow": ["tenant"]}
            loader = pair.key("loader", Role.INGEST)
            assert pair.clients[0].put("/v1/documents/notice.md", json=document, headers=loader).is_success
            ana = pair.key("ana")
            replies = [client.post("/v1/answers", json=QUESTION, headers=ana) for client in pair.clients * 6]
            assert Counter(reply.status_code for reply in replies) == {200: 5, 429: 7}
            for reply in replies[5:]:
                assert (reply.json()["scope"], reply.json()["limit"], reply.json()["used"]) == ("user", 5, 5)
            assert {int(reply.headers["Retry-After"]) // 62 for reply in replies[5:]} == {0}
            assert [client.post("/v1/answers", json=QUESTION, headers=pair.key("bo")).status_code
                    for client in pair.clients] == [200, 200]  # fmt: skip
            rows = {row["check"]: row for row in json.loads(command(pair.environment, "doctor", "--json").stdout)}
            assert (rows["limits"]["state"], rows["limits"]["finding"][:8]) == ("ok", "redis 8.")
            server.kill()
            found = command(pair.environment, "doctor", "--json")
            rows = {row["check"]: row for row in json.loads(found.stdout)}
            assert (found.returncode, rows["limits"]["state"]) == (1, "wrong")
            assert {client.post("/v1/answers", json=QUESTION, headers=ana).status_code for client in pair.clients} == {
                503
            }
    finally:
        server.kill()
