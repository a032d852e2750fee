"""Adapters' folders, rows and labels: what is taken, what is refused, and who may use which."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from generation.adapters import files, registry
from generation.adapters.manifest import CONFIG, WEIGHTS, Description, describe
from generation.adapters.registry import Registered
from tenancy import directory, ledger
from tenancy.domain import permission_domain
from tenancy.errors import Forbidden, InvalidInput, NotFound, TooLarge
from tenancy.schema import adapters
from tenancy.tenant import ReadView
from tests.support.lora import write_adapter, write_tensors
from tests.support.people import NOW, Company

# Folders


def test_a_folder_of_peft_is_read(tmp_path: Path) -> None:
    folder = write_adapter(tmp_path / "a", base="llama", rank=4, modules=("q_proj", "o_proj"), revision="r9")
    (folder / "README.md").write_text("not ours")
    found = describe(folder)
    assert (found.base, found.base_revision, found.rank, found.modules) == ("llama", "r9", 4, ("o_proj", "q_proj"))


def link(folder: Path) -> None:
    (folder / WEIGHTS).rename(folder.parent / "elsewhere")
    (folder / WEIGHTS).symlink_to(folder.parent / "elsewhere")


def pipe(folder: Path) -> None:
    (folder / CONFIG).unlink()
    os.mkfifo(folder / CONFIG)


def cut(folder: Path) -> None:
    data = (folder / WEIGHTS).read_bytes()
    (folder / WEIGHTS).write_bytes(data[:-1])


def longer(folder: Path) -> None:
    with (folder / WEIGHTS).open("ab") as file:
        file.write(b"more")


def tensors(header: Any, data: bytes = b"") -> Callable[[Path], None]:
    return lambda folder: write_tensors(folder / WEIGHTS, header, data)


def tensor(name: str, shape: list[int]) -> Callable[[Path], None]:
    size = 4 * shape[0] * shape[1]
    return tensors({name: {"dtype": "F32", "shape": shape, "data_offsets": [0, size]}}, bytes(size))


LORA_A = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"
BROKEN: dict[str, tuple[Callable[[Path], Any], str]] = {
    "a link": (link, WEIGHTS),
    "a pipe": (pipe, CONFIG),
    "a folder": (lambda folder: (folder / "checkpoint-1").mkdir(), "checkpoint-1"),
    "a pickle": (lambda folder: (folder / "adapter_model.bin").write_bytes(b"\x80\x04."), "adapter_model.bin"),
    "a pickle in capitals": (lambda folder: (folder / "optimizer.PT").touch(), "optimizer.PT"),
    "tokens of its own": (lambda folder: (folder / "added_tokens.json").write_text("{}"), "added_tokens.json"),
    "no weights": (lambda folder: (folder / WEIGHTS).unlink(), WEIGHTS),
    "no configuration": (lambda folder: (folder / CONFIG).unlink(), CONFIG),
    "no JSON": (lambda folder: (folder / CONFIG).write_text("{"), CONFIG),
    "weights that are cut": (cut, WEIGHTS),
    "weights that go on": (longer, WEIGHTS),
    "a pickle by another name": (lambda folder: (folder / WEIGHTS).write_bytes(b"PK\x03\x04" + bytes(40)), WEIGHTS),
    "a length beyond the file": (lambda folder: (folder / WEIGHTS).write_bytes(b"\xff" * 8 + b"{}"), WEIGHTS),
    "a header that is no JSON": (tensors(b"{]"), WEIGHTS),
    "no tensors": (tensors({}), WEIGHTS),
    "tensors that overlap": (
        tensors({f"{LORA_A}{n}": {"dtype": "F32", "shape": [4, 1], "data_offsets": [0, 16]} for n in "12"}, bytes(16)),
        WEIGHTS,
    ),
    "a tensor of the base": (tensor("model.layers.0.self_attn.q_proj.weight", [4, 8]), "model.layers.0"),
    "an undeclared module": (tensor(LORA_A.replace("q_proj", "up_proj"), [4, 8]), "base_model"),
    "another rank": (tensor(LORA_A, [8, 4]), "base_model"),
    "a name that writes to terminals": (tensor("\x1b[31mx", [4, 8]), "\\x1b[31mx"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_folder_that_is_no_plain_adapter_is_refused_by_the_name_of_its_file(tmp_path: Path, name: str) -> None:
    spoil, item = BROKEN[name]
    folder = write_adapter(tmp_path / "a")
    describe(folder)
    spoil(folder)
    with pytest.raises(InvalidInput) as caught:
        describe(folder)
    assert str(caught.value.item).startswith(item)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("peft_type", "IA3"), ("r", 0), ("r", 100_000), ("r", "8"), ("lora_alpha", 0), ("target_modules", "all-linear"),
        ("target_modules", []), ("bias", "all"), ("use_dora", True), ("use_rslora", True), ("fan_in_fan_out", True),
        ("modules_to_save", ["lm_head"]), ("rank_pattern", {"q_proj": 2}), ("alpha_pattern", {"q_proj": 2}),
        ("base_model_name_or_path", None), ("base_model_name_or_path", "a\x1b[0m"),
    ],
)  # fmt: skip
def test_what_engines_would_not_follow_is_refused_by_its_key(tmp_path: Path, key: str, value: Any) -> None:
    folder = write_adapter(tmp_path / "a")
    config = json.loads((folder / CONFIG).read_text())
    (folder / CONFIG).write_text(json.dumps(config | {key: value}))
    with pytest.raises(InvalidInput) as caught:
        describe(folder)
    assert str(caught.value.item).startswith(key)
    assert "\x1b" not in str(caught.value)


@pytest.mark.parametrize("name", [CONFIG, WEIGHTS])
def test_json_that_is_nested_without_end_is_refused(tmp_path: Path, name: str) -> None:
    folder = write_adapter(tmp_path / "a")
    deep = b'{"x": ' + b"[" * 200_000 + b"]" * 200_000 + b"}"
    (folder / name).write_bytes(deep if name == CONFIG else len(deep).to_bytes(8, "little") + deep)
    with pytest.raises(InvalidInput) as caught:
        describe(folder)
    assert caught.value.item == name


def test_a_file_over_the_limit_is_refused_unread(tmp_path: Path) -> None:
    folder = write_adapter(tmp_path / "a")
    with (folder / WEIGHTS).open("r+b") as file:
        file.truncate(9 << 30)  # holes: nothing is written
    with pytest.raises(TooLarge, match="may have"):
        describe(folder)


def test_a_link_to_a_folder_and_no_folder_are_refused(tmp_path: Path) -> None:
    folder = write_adapter(tmp_path / "a")
    (tmp_path / "link").symlink_to(folder)
    for path in (tmp_path / "link", tmp_path / "none", folder / CONFIG):
        with pytest.raises(InvalidInput):
            describe(path)


# Where they lie


def test_a_copy_is_whole_opaque_and_readable_by_a_group_alone(tmp_path: Path) -> None:
    source, root = write_adapter(tmp_path / "acme-secret-project"), tmp_path / "engines"
    (source / "README.md").write_text("stays where it is")
    seen: list[int] = []
    partial, manifest = files.copy_in(source, root, "t_1", seen.append)
    files.publish(partial, "ad_1")
    path = files.adapter_path(root, "t_1", "ad_1")
    assert sum(seen) == sum((source / name).stat().st_size for name in (CONFIG, WEIGHTS))
    assert sorted(os.listdir(path)) == [CONFIG, WEIGHTS]
    assert files.intact(path, manifest)
    assert "t_1" not in str(path.relative_to(root))
    assert path.stat().st_mode & 0o777 == 0o750
    assert {(path / name).stat().st_mode & 0o777 for name in manifest} == {0o640}


@pytest.mark.parametrize("name", [CONFIG, WEIGHTS])
def test_a_file_that_changed_is_no_more_that_of_the_manifest(tmp_path: Path, name: str) -> None:
    partial, manifest = files.copy_in(write_adapter(tmp_path / "a"), tmp_path / "engines", "t_1", lambda _: None)
    assert files.intact(partial, manifest)
    data = (partial / name).read_bytes()
    (partial / name).write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    assert not files.intact(partial, manifest)
    (partial / name).write_bytes(data)
    assert files.intact(partial, manifest)
    (partial / "adapter_model.bin").touch()
    assert not files.intact(partial, manifest), "an engine may take what stands beside it"
    (partial / "adapter_model.bin").unlink()
    (partial / name).unlink()
    assert not files.intact(partial, manifest)
    assert not files.intact(tmp_path / "none", manifest)
    assert not files.intact(partial, {"../a": "0" * 64})


def test_only_the_tenants_own_folders_are_removed(tmp_path: Path) -> None:
    source, root = write_adapter(tmp_path / "a"), tmp_path / "engines"
    for tenant, name in (("t_1", "ad_1"), ("t_1", "ad_2"), ("t_2", "ad_3")):
        files.publish(files.copy_in(source, root, tenant, lambda _: None)[0], name)
    files.copy_in(source, root, "t_1", lambda _: None)  # as after a crash
    files.keep_only(root, "t_1", {"ad_2"})
    assert os.listdir(root / files.tenant_folder("t_1")) == ["ad_2"]
    files.remove_all(root, files.tenant_folder("t_1"))
    files.remove_all(root, files.tenant_folder("t_1"))
    assert os.listdir(root) == [files.tenant_folder("t_2")]


# Rows


MANIFEST = {CONFIG: "1" * 64, WEIGHTS: "2" * 64}


def add(
    company: Company, name: str = "voice", allow: Iterable[str] | None = None, manifest: dict[str, str] | None = None
) -> Registered:
    described = Description("tiny", None, 4, ("q_proj",))
    with company.handle.writing() as view:
        return registry.register(view, name, "tiny", described, manifest or MANIFEST, allow, NOW)


def may(company: Company, user: str, name: str = "voice") -> bool:
    principal = company.principal(user)
    with company.handle.reading() as view:
        domain = permission_domain(principal, view)
        found = registry.usable(domain, view, name)
        if found is not None:
            assert registry.still_usable(domain, view, found.id)
        assert (found is not None) == (name in [one.name for one in registry.all_usable(domain, view)])
        return found is not None


def revoke(company: Company, name: str = "voice") -> tuple[str, ...]:
    with company.handle.writing() as view:
        return registry.revoke(view, name, NOW + 1)


def rows(company: Company) -> list[Registered]:
    with company.handle.reading() as view:
        return list(registry.registered(view))


def test_a_registered_adapter_is_its_tenants_until_it_is_revoked(acme: Company, globex: Company) -> None:
    made = add(acme)
    assert made.id.startswith("ad_")
    assert len(made.id) == 35
    assert may(acme, "ana")
    assert not may(globex, "ana")
    assert not may(acme, "ana", "other")
    assert not may(acme, "ana", "\0\ud800")
    assert revoke(acme) == (made.id,)
    assert not may(acme, "ana")
    with pytest.raises(NotFound):
        revoke(acme)


@pytest.mark.both_storages
def test_a_changed_adapter_is_another_and_the_same_stays_the_same(acme: Company) -> None:
    first = add(acme)
    assert add(acme) == first
    second = add(acme, manifest={**MANIFEST, WEIGHTS: "3" * 64})
    third = add(acme, allow=["group:legal"], manifest={**MANIFEST, WEIGHTS: "3" * 64})
    assert len({first.id, second.id, third.id}) == 3
    assert first.revision != second.revision == third.revision
    assert [one.id for one in rows(acme) if one.revoked is None] == [third.id]
    again = add(acme)
    assert again.revision == first.revision
    assert again.id != first.id, "no engine, cache or KV memory takes it for the one that was revoked"


def test_ids_are_random_and_tell_nothing(acme: Company, globex: Company) -> None:
    ids = [add(company, name).id for company in (acme, globex) for name in ("voice", "other")]
    assert len(set(ids)) == 4
    assert not any(word in made for made in ids for word in ("acme", "globex", "voice"))


@pytest.mark.both_storages
def test_labels_say_which_users_may_use_it(acme: Company) -> None:
    acme.member("legal", "user:ana", "group:partners")
    acme.member("partners", "user:bo")
    add(acme, allow=["group:legal", "user:cy"])
    assert [user for user in ("ana", "bo", "cy", "di") if may(acme, user)] == ["ana", "bo", "cy"]
    acme.leave("legal", "group:partners")
    assert not may(acme, "bo")
    add(acme, "open", allow=["tenant"])
    assert may(acme, "di", "open")
    add(acme, "closed", allow=[])
    assert not may(acme, "ana", "closed"), "an empty list is not everybody"
    with acme.handle.reading() as view:
        voice = next(one for one in registry.registered(view) if one.name == "voice")
        assert registry.labels_of(view, voice) == ["group:legal", "user:cy"]


def test_a_name_that_is_used_again_inherits_no_adapter(acme: Company) -> None:
    acme.member("legal", "user:ana")
    add(acme, allow=["group:legal"])
    assert may(acme, "ana")
    with acme.handle.writing() as view:
        directory.delete_group(view, "legal")
    acme.member("legal", "user:ana")
    assert not may(acme, "ana")


def test_a_domain_of_one_tenant_asks_nothing_of_another(acme: Company, globex: Company) -> None:
    add(acme, allow=["tenant"])
    principal = globex.principal("ana")
    with globex.handle.reading() as theirs, acme.handle.reading() as view:
        domain = permission_domain(principal, theirs)
        with pytest.raises(Forbidden):
            registry.usable(domain, view, "voice")


@pytest.mark.parametrize("name", ["", "Voice", "a:b", "a/b", "../a", "a" * 64, "-a", "ä"])
def test_a_name_is_plain(acme: Company, name: str) -> None:
    with pytest.raises(InvalidInput):
        add(acme, name)


def test_a_restore_brings_no_revoked_adapter_back(acme: Company) -> None:
    made = add(acme)
    other = add(acme, "other")
    revoke(acme)
    with acme.handle.audit.ledger().reading() as connection:
        entries = [what for _, _, what in ledger.since(connection, 0)]
    assert entries == [["adapter", made.id]]
    assert ledger.known(entries[0])
    with acme.handle.writing() as view:
        # As in an older backup.
        view.execute(adapters.update().values(revoked=None))
        assert ledger.apply(view._connection, entries[0])
        assert not ledger.apply(view._connection, entries[0])
    assert [one.id for one in rows(acme) if one.revoked is None] == [other.id]


@pytest.mark.both_storages
def test_a_token_user_uses_by_the_groups_of_the_token(acme: Company) -> None:
    acme.member("legal", "group:partners")
    add(acme, allow=["group:legal"])
    principal = acme.principal("ana")

    def usable(view: ReadView, *groups: str) -> bool:
        held = replace(principal, groups=frozenset(groups))
        return registry.usable(permission_domain(held, view), view, "voice") is not None

    with acme.handle.reading() as view:
        assert usable(view, "partners")
        assert usable(view, "legal")
        assert not usable(view, "nobody")
        assert not usable(view)
