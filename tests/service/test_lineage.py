"""Did a tenant's data train a model? What adapters declare, what is refused, and what outlives what."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import delete, select, update

from generation.adapters import lineage as registry
from generation.adapters.training import FILE, ForeignTraining, Source, read_training, training_of
from indexing.documents import delete_document
from service.adapters import add_adapter, revoke_adapter
from service.deletion import delete_tenant
from service.lineage import _verifier, lineage, lineage_of_deleted
from tenancy import schema
from tenancy.contract import Contract, GenerationTerms
from tenancy.errors import InvalidInput, NotFound
from tenancy.identity import Role
from tenancy.tenant import TenantHandle
from tests.cache.verifier.small import small_verifier
from tests.service.house import House, problem
from tests.service.test_adapter_cli import Run, cli, data
from tests.service.test_adapters import pools
from tests.support.lora import write_adapter

__all__ = ["cli"]

VERSION = "sha256:" + "0" * 64


@pytest.fixture
def house(folder: Path) -> Iterator[House]:
    """Two tenants with a document each; their pool takes adapters, and nothing runs there."""
    made = House(
        folder,
        STRONGROOM_GENERATION__POOLS=pools(main={"replicas": ["http://127.0.0.1:9"]}),
        STRONGROOM_GENERATION__ROUTING='{collection = ["main"]}',
        STRONGROOM_GENERATION__ADAPTERS_DIR=str(folder / "engines"),
    )
    with made.client:
        for tenant in ("acme", "globex"):
            made.put(tenant, "notice.md", "The notice period is three months.", allow=["tenant"])
        yield made
        made.client.blocking_portal.call(made.services.path.routes.aclose)
    made.close()


def handle(house: House, tenant: str = "acme") -> TenantHandle:
    control = house.services.control
    return control.tenants.open(control.authenticator.operator(tenant))


def add(house: House, folder: Path, *sources: Source, tenant: str = "acme", name: str = "voice", seed: int = 1) -> str:
    source = folder / f"source-{len(list(folder.glob('source-*')))}"
    training = training_of(sources) if sources else None
    made = add_adapter(
        house.settings.generation, handle(house, tenant), name, write_adapter(source, seed=seed), training=training
    )
    return made.id


def of(document: str = "notice.md", version: str = VERSION, tenant: str = "acme") -> Source:
    return Source(tenant=tenant, document=document, version=version, licence="LicenseRef-acme")


PUBLIC = Source(dataset="org/public-set", version="2024-06", licence="CC-BY-4.0")


def asked(house: House, tenant: str = "acme", **options: Any) -> dict[str, Any]:
    control = house.services.control
    return lineage(control, control.authenticator.operator(tenant), **options)


def version_of(house: House) -> str:
    with handle(house).reading() as view:
        return str(view.execute(select(schema.documents.c.version)).scalar_one())


# The answer


def test_without_an_adapter_nothing_was_trained(house: House) -> None:
    found = asked(house)
    assert (found["trained"], found["adapters"], found["findings"]) == ("no", [], [])
    assert {model["role"] for model in found["models"]} == {"embedding", "score", "generator"}
    embedding = next(model for model in found["models"] if model["role"] == "embedding")
    assert (embedding["training"], embedding["collection"]) == ("none: hashes words", "serving")
    assert next(model for model in found["models"] if model["role"] == "generator")["revision"] == "r1"


def test_a_declaration_answers_for_the_tenant_and_for_each_document(house: House, folder: Path) -> None:
    version = version_of(house)
    made = add(house, folder, of(version=version), of("old.md"), PUBLIC)
    found = asked(house)
    assert found["trained"] == "yes"
    (row,) = found["adapters"]
    assert (row["id"], row["adapter"], row["state"], row["base"], row["rank"]) == (made, "voice", "usable", "tiny", 4)
    assert row["modules"] == ["q_proj", "v_proj"]
    (said,) = row["declarations"]
    assert (said["total"], said["matching"], said["intact"]) == (3, 2, True)
    assert said["licences"] == ["CC-BY-4.0", "LicenseRef-acme"]
    assert {source.get("document"): source.get("now") for source in said["sources"]} == {
        "notice.md": "current", "old.md": "never here", None: None,
    }  # fmt: skip
    assert asked(house, document="notice.md")["trained"] == "yes"
    other = asked(house, document="other.md")
    assert (other["trained"], other["adapters"][0]["matching"]) == ("no", 0)
    assert other["adapters"][0]["declarations"][0]["sources"] == []
    assert asked(house, document="notice.md", adapter=made)["trained"] == "yes"
    assert asked(house, "globex")["trained"] == "no"
    with pytest.raises(NotFound):
        asked(house, adapter="another")
    with pytest.raises(NotFound):
        asked(house, "globex", adapter=made)


def test_public_data_alone_is_a_no_and_an_undeclared_adapter_makes_it_unknown(house: House, folder: Path) -> None:
    add(house, folder, PUBLIC)
    assert asked(house)["trained"] == "no"
    undeclared = add(house, folder, name="other", seed=2)
    found = asked(house)
    assert found["trained"] == "unknown"
    assert found["findings"] == [f"the adapter other ({undeclared}, usable) does not say what it was trained on"]
    assert asked(house, adapter="voice")["trained"] == "no"
    add(house, folder, of(), name="third", seed=3)
    assert asked(house)["trained"] == "yes"


def test_an_adapter_of_before_there_was_a_record_is_undeclared(house: House, folder: Path) -> None:
    add(house, folder, PUBLIC)
    with handle(house).audit.database(registry.LINEAGE_FILE, registry.metadata).writing() as connection:
        for table in reversed(registry.metadata.sorted_tables):
            connection.execute(delete(table))
    found = asked(house)
    assert (found["trained"], found["adapters"][0]["state"]) == ("unknown", "usable")


def test_an_adapter_that_the_deployment_gave_to_a_pool_declares_nothing(folder: Path) -> None:
    house = House(
        folder,
        STRONGROOM_GENERATION__POOLS=pools(
            main={"replicas": ["http://127.0.0.1:9"], "adapter": "house-style", "max_adapters": 0}
        ),
        STRONGROOM_GENERATION__ROUTING='{collection = ["main"]}',
    )
    house.key("acme", "ana")
    found = asked(house)
    assert found["trained"] == "unknown"
    assert found["findings"] == ["the pool main answers with an adapter of the deployment that declares nothing"]
    house.close()


def test_a_name_that_was_never_here_is_no_quiet_no(house: House) -> None:
    found = asked(house, document="notise.md")
    assert found["trained"] == "no"
    assert found["findings"] == ["no document notise.md was ever here: check the name, its folder too"]
    assert asked(house, document="notice.md")["findings"] == []
    delete_document(handle(house), "notice.md", 0.0)
    assert asked(house, document="notice.md")["findings"] == []


def test_what_became_of_the_documents_is_said(house: House, folder: Path) -> None:
    first = version_of(house)
    add(house, folder, of(version=first))
    house.put("acme", "notice.md", "The notice period is four months.", allow=["tenant"])
    (source,) = asked(house, document="notice.md")["adapters"][0]["declarations"][0]["sources"]
    assert source["now"] == "superseded"
    assert asked(house)["findings"] == []
    house.send("DELETE", "/v1/documents/notice.md", house.key("acme", "loader", Role.INGEST))
    found = asked(house)
    assert found["adapters"][0]["declarations"][0]["sources"][0]["now"] == "deleted"
    assert "was trained on 1 document version of documents that were deleted since" in found["findings"][0]
    revoke_adapter(house.settings.generation, handle(house), "voice")
    assert asked(house)["findings"] == [], "a revoked adapter answers nobody"


def test_a_verifier_says_what_its_manifest_says(tmp_path: Path) -> None:
    small_verifier(tmp_path / "small")
    found = _verifier(tmp_path / "small")
    assert found["revision"].startswith("verifier-")
    assert found["declared"]
    assert "not to be had" in _verifier(tmp_path / "nothing")["training"]


# What outlives what


def test_revocation_replacement_and_the_end_of_the_row_leave_the_record(house: House, folder: Path) -> None:
    first = add(house, folder, of())
    second = add(house, folder, PUBLIC, seed=2)
    states = {row["id"]: row["state"] for row in asked(house)["adapters"]}
    assert states == {first: "revoked", second: "usable"}
    revoke_adapter(house.settings.generation, handle(house), "voice")
    found = asked(house)
    assert (found["trained"], {row["state"] for row in found["adapters"]}) == ("yes", {"revoked"})
    assert found["adapters"][0]["revoked"] <= time.time()
    with handle(house).writing() as view:
        view.execute(delete(schema.adapters))
    found = asked(house)
    assert (found["trained"], {row["state"] for row in found["adapters"]}) == ("yes", {"gone"})


def test_the_record_outlives_the_tenant(house: House, folder: Path) -> None:
    add(house, folder, of())
    control, services = house.services.control, house.services
    tenant_id = handle(house).tenant_id
    with pytest.raises(NotFound):
        lineage_of_deleted(control, "acme")
    delete_tenant(control, control.authenticator.operator("acme"), services.engines, services.path.cache)
    found = lineage_of_deleted(control, tenant_id, document="notice.md")
    assert (found["tenant"], found["trained"], found["models"]) == ("acme", "yes", [])
    assert found["adapters"][0]["state"] == "gone"
    assert "now" not in found["adapters"][0]["declarations"][0]["sources"][0]


def test_the_same_files_again_add_a_declaration_and_take_none_away(house: House, folder: Path) -> None:
    undeclared = add(house, folder)
    assert asked(house)["trained"] == "unknown"
    assert add(house, folder, PUBLIC) == undeclared
    assert asked(house)["trained"] == "no"
    assert add(house, folder, of()) == undeclared
    assert add(house, folder, PUBLIC) == undeclared
    found = asked(house)
    assert (found["trained"], len(found["adapters"][0]["declarations"])) == ("yes", 2)


def test_a_failed_registration_leaves_a_record_and_no_adapter(
    house: House, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded = registry.record

    def and_stop(*given: Any) -> None:
        recorded(*given)
        raise OSError("stopped before the commit")

    monkeypatch.setattr(registry, "record", and_stop)
    with pytest.raises(OSError, match="stopped"):
        add(house, folder, of())
    monkeypatch.undo()
    found = asked(house)
    assert [row["state"] for row in found["adapters"]] == ["gone"]
    assert found["trained"] == "yes", "it is not known that nobody was answered"


def test_sources_that_were_changed_on_disk_are_noticed(house: House, folder: Path) -> None:
    add(house, folder, of())
    with handle(house).audit.database(registry.LINEAGE_FILE, registry.metadata).writing() as connection:
        connection.execute(update(registry.lineage_sources).values(document="another.md"))
    found = asked(house)
    assert found["adapters"][0]["declarations"][0]["intact"] is False
    assert "are not those that were declared" in found["findings"][0]
    assert asked(house, document="notice.md")["trained"] == "unknown"


# Another tenant's data


@pytest.mark.parametrize("named", ["globex", "nobody", "ACME", "acme.", "Acme"])
def test_a_declaration_that_names_another_tenant_is_refused_whole(house: House, folder: Path, named: str) -> None:
    with pytest.raises(ForeignTraining) as refusal:
        add(house, folder, of(), PUBLIC, of(tenant=named))
    assert "one source" in refusal.value.reason
    assert named not in str(refusal.value)
    assert asked(house)["adapters"] == []
    assert list((folder / "engines").rglob("*.safetensors")) == []


def test_the_tenants_own_id_is_its_name_too(house: House, folder: Path) -> None:
    add(house, folder, of(tenant=handle(house).tenant_id))
    assert asked(house)["trained"] == "yes"


def test_what_the_folder_brings_along_counts_whoever_calls(house: House, folder: Path) -> None:
    source = write_adapter(folder / "brought")
    foreign = {"format": "strongroom-training-1", "sources": [_plain(of(tenant="globex"))]}
    (source / FILE).write_text(json.dumps(foreign))
    with pytest.raises(ForeignTraining):
        add_adapter(house.settings.generation, handle(house), "voice", source)
    (source / FILE).write_text(json.dumps(foreign | {"sources": [_plain(of())]}))
    add_adapter(house.settings.generation, handle(house), "voice", source)
    assert asked(house)["trained"] == "yes"


def test_a_contract_may_ask_for_declarations(house: House, folder: Path) -> None:
    tenants = house.services.control.tenants
    tenants.set_contract("acme", Contract(generation=GenerationTerms(declared_adapters=True)))
    with pytest.raises(InvalidInput, match="contract asks what an adapter was trained on"):
        add(house, folder)
    add(house, folder, PUBLIC)


def _plain(source: Source) -> dict[str, str]:
    return {name: getattr(source, name) for name in source.__struct_fields__ if getattr(source, name) is not None}


# The file


@pytest.mark.parametrize(
    ("content", "item"),
    [
        ("{", "declared.json"),
        ("[]", "declared.json"),
        ({"format": "another", "sources": [_plain(PUBLIC)]}, "format"),
        ({"format": "strongroom-training-1", "sources": []}, "sources"),
        ({"format": "strongroom-training-1", "sources": [{"dataset": "a", "version": "1"}]}, "sources[0]"),
        ({"format": "strongroom-training-1", "sources": [_plain(PUBLIC) | {"tenants": "x"}]}, "sources[0]"),
        ({"format": "strongroom-training-1", "sources": [_plain(PUBLIC) | {"tenant": "acme"}]}, "sources[0]"),
        ({"format": "strongroom-training-1", "sources": [{"version": "1", "licence": "MIT"}]}, "sources[0]"),
        (
            {"format": "strongroom-training-1", "sources": [{"tenant": "acme", "version": "1", "licence": "MIT"}]},
            "sources[0]",
        ),
        ({"format": "strongroom-training-1", "sources": [_plain(PUBLIC) | {"licence": "a\x1b[2J"}]}, None),
    ],
)
def test_a_file_that_is_no_declaration_is_refused_by_its_place(tmp_path: Path, content: Any, item: str | None) -> None:
    path = tmp_path / "declared.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    with pytest.raises(InvalidInput) as refusal:
        read_training(path)
    assert item in (None, refusal.value.item)


def test_order_and_repetition_change_no_digest(tmp_path: Path) -> None:
    one = training_of([PUBLIC, of(), of("b.md")])
    assert training_of([of("b.md"), of(), PUBLIC, of()]) == one
    assert training_of([of("b.md"), of()]).digest != one.digest
    decomposed, composed = of("cafe\u0301.md"), of("caf\u00e9.md")
    assert training_of([decomposed]) == training_of([composed])
    assert (one.documents, one.licences) == (2, ("CC-BY-4.0", "LicenseRef-acme"))
    path = tmp_path / "link.json"
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InvalidInput):
        read_training(path)


# Commands and HTTP


def test_the_command_answers_and_is_on_record(cli: Run, folder: Path) -> None:
    declared = folder / "declared.json"
    declared.write_text(json.dumps({"format": "strongroom-training-1", "sources": [_plain(of()), _plain(PUBLIC)]}))
    source = str(write_adapter(folder / "voice"))
    added = ("adapter", "add", "voice", source, "--tenant", "acme")
    made = data(cli(*added, "--training", str(declared), "--json"))
    assert (made["training"], made["training_sources"], made["training_documents"]) == ("declared", 2, 1)
    assert cli("adapter", "revoke", "voice", "--tenant", "acme")[0] == 0
    found = data(cli("lineage", "--tenant", "acme", "--document", "notice.md", "--json"))
    assert (found["trained"], found["adapters"][0]["state"]) == ("yes", "revoked")
    (said,) = found["adapters"][0]["declarations"]
    events = data(cli("audit", "query", "--tenant", "acme", "--json"))["events"]
    registration = next(one for one in events if one["action"] == "adapter.add" and one["phase"] == "outcome")
    assert said["event"] == registration["seq"]
    assert registration["detail"]["training_manifest"] == said["manifest"] == made["training_manifest"]
    query = next(one for one in events if one["action"] == "lineage.query" and one["phase"] == "outcome")
    assert (query["detail"]["document"], query["detail"]["trained"]) == ("notice.md", "yes")
    code, out, said = cli("lineage", "--tenant", "acme")
    assert code == 0, said
    assert "trained on data of this tenant: yes" in out
    assert "LicenseRef-acme" in out
    assert cli("lineage")[0] == 2
    assert cli("lineage", "--tenant", "acme", "--adapter", "none")[0] == 1


def test_the_tenant_that_a_refused_declaration_names_learns_of_it_and_not_of_whom(cli: Run, folder: Path) -> None:
    declared = folder / "declared.json"
    sources = [_plain(of()), _plain(of(tenant="globex")), _plain(of("secret.md", tenant="nobody"))]
    declared.write_text(json.dumps({"format": "strongroom-training-1", "sources": sources}))
    add = ("adapter", "add", "voice", str(write_adapter(folder / "voice")), "--tenant", "acme")
    for _ in range(2):
        code, _, said = cli(*add, "--training", str(declared))
        assert (code, "another tenant's in 2 sources" in said, "globex" in said) == (2, True, False)
    found = data(cli("lineage", "--tenant", "globex", "--json"))
    assert found["trained"] == "no"
    (refused,) = found["refused"]
    assert (refused["document"], refused["now"]) == ("notice.md", "never here")
    assert "acme" not in json.dumps(found)
    events = data(cli("audit", "query", "--tenant", "globex", "--action", "lineage.refused", "--json"))["events"]
    assert {event["phase"] for event in events} == {"intent", "outcome"}
    assert "acme" not in json.dumps(events)
    mine = data(cli("audit", "query", "--tenant", "acme", "--action", "adapter.add", "--json"))["events"]
    outcome = next(event for event in mine if event["phase"] == "outcome")
    assert (outcome["outcome"], outcome["reason"]) == ("refused", "foreign-training-data")
    assert "globex" not in json.dumps(mine)


@pytest.mark.slow
def test_a_restored_tenant_keeps_its_record_and_a_copy_has_none(cli: Run, folder: Path) -> None:
    source = write_adapter(folder / "voice")
    (source / FILE).write_text(json.dumps({"format": "strongroom-training-1", "sources": [_plain(of())]}))
    backup = str(folder / "acme.backup")
    assert cli("backup", "--tenant", "acme", backup)[0] == 0
    assert cli("adapter", "add", "voice", str(source), "--tenant", "acme")[0] == 0
    assert cli("restore", backup, "--as", "copy")[0] == 0
    assert data(cli("lineage", "--tenant", "copy", "--json"))["trained"] == "no"
    assert cli("tenant", "suspend", "acme")[0] == 0
    assert data(cli("lineage", "--tenant", "acme", "--json"))["trained"] == "yes", "suspended or not"
    assert cli("restore", backup, "--replace")[0] == 0
    found = data(cli("lineage", "--tenant", "acme", "--json"))
    assert (found["trained"], found["adapters"][0]["state"]) == ("yes", "gone")


def test_an_undeclared_adapter_is_said_aloud(cli: Run, folder: Path) -> None:
    code, _, said = cli("adapter", "add", "voice", str(write_adapter(folder / "voice")), "--tenant", "acme")
    assert code == 0
    assert "nothing says what it was trained on" in said
    code, out, _ = cli("lineage", "--tenant", "acme")
    assert (code, "UNDECLARED" in out, "trained on data of this tenant: unknown" in out) == (0, True, True)


def test_auditors_ask_over_http_and_nobody_else(house: House, folder: Path) -> None:
    add(house, folder, of(), PUBLIC)
    auditor = house.key("acme", "audit", Role.AUDITOR)
    found = house.get("/v1/audit/lineage?document=notice.md", auditor)
    assert found.status_code == 200, found.text
    assert found.json()["trained"] == "yes"
    assert house.get("/v1/audit/lineage", house.key("globex", "audit", Role.AUDITOR)).json()["trained"] == "no"
    for role in (Role.READER, Role.ADMIN, Role.INGEST):
        problem(house.get("/v1/audit/lineage", house.key("acme", f"a-{role}", role)), 403, "forbidden")
    problem(house.get("/v1/audit/lineage?tenant=globex", auditor), 403, "forbidden")
    problem(house.get("/v1/audit/lineage?documents=notice.md", auditor), 400, "unknown-parameter")
    problem(house.get("/v1/audit/lineage?adapter=other", auditor), 404, "not-found")
    problem(house.get("/v1/audit/lineage?document=a%00b", auditor), 422, "invalid-input")
    events = [one for one in house.events("acme") if one["action"] == "lineage.query" and one["phase"] == "outcome"]
    assert [one["outcome"] for one in events].count("allowed") == 1
    assert events[0]["detail"] == {"document": "notice.md", "trained": "yes", "adapters": 1}
