"""A change tried on three tenants: the gate names the one that gets worse, and keeps it; the last line is JSON.

    python -m benchmarks.shadow_gate --data DIR [--questions N]

DIR holds retrieval/xquad-en, -zh and -de. Each becomes a tenant: the first passages of the set, and N questions that
they answer, as well as N / 4 that stand in other passages only. Two changes are tried by `eval shadow`'s own functions:
an embedding model without any language (`hashing:512`) in the place of the packaged one, and a threshold of evidence
of 0.6. The exit code is 1 where no tenant gets worse, or one that does is not kept.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.retrieval_sets import RetrievalSet, read_set
from evaluation.change import Change, check_change
from evaluation.sets import Case
from indexing.ingest import Source, ingest
from service.evaluating import Row, Terms, try_on
from service.settings import load_settings
from service.wiring import Services, build
from tenancy.acl import AccessList
from tenancy.identity import Role
from tenancy.keys import MasterKey

LANGUAGES = ("en", "zh", "de")
OTHER = "hashing:512"
CHANGES: dict[str, dict[str, Any]] = {
    "model without a language": {"embedding": {"model": OTHER}},
    "threshold 0.6": {"retrieval": {"threshold": 0.6}},
}


def cases_of(data: RetrievalSet, count: int) -> tuple[dict[str, str], list[Case]]:
    """Documents, and cases from all over the set, of which a fifth are answered by none of them."""
    step = max(1, len(data.questions) // (2 * count))
    answered: list[Case] = []
    empty: list[Case] = []
    kept: dict[str, str] = {}
    for key, text in list(data.questions.items())[::step]:
        names = list(data.relevant[key])
        if len(answered) < count:
            kept.update({name: data.documents[name] for name in names})
            answered.append(Case(question=text, documents=tuple(names), asker="reader"))
        elif not kept.keys() & set(names) and len(empty) < count // 4:
            empty.append(Case(question=text, unanswerable=True, asker="reader"))
    return kept, answered + empty


async def tried(services: Services, sets: dict[str, list[Case]], change: Change) -> list[Row]:
    rows = []
    for tenant, cases in sets.items():
        begun = time.perf_counter()
        row = await try_on(services, tenant, cases, change, Terms(policy="keep"), lambda _name, _done, _of: None)
        print(f"  {tenant}: {msgspec.to_builtins(row)} in {time.perf_counter() - begun:.0f} s", flush=True)
        rows.append(row)
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--questions", type=int, default=80)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "settings.toml"
        config.write_text(f'data_dir = "{folder}/data"\n[embedding]\nalso = ["{OTHER}"]\n')
        services = build(load_settings(config), MasterKey(bytes(range(32))))
        tenants = services.control.tenants
        sets: dict[str, list[Case]] = {}
        for language in LANGUAGES:
            name = f"xquad-{language}"
            documents, sets[name] = cases_of(read_set(options.data, name), options.questions)
            tenants.create(name)
            tenants.create_key(name, "reader", [Role.READER])
            handle = tenants.open(services.control.authenticator.operator(name))
            for key, text in documents.items():
                ingest(handle, services.pipeline, Source(key, text.encode(), AccessList.of(["tenant"]), "text/plain"))
            print(f"{name}: {len(documents)} documents, {len(sets[name])} questions", flush=True)
        found = {}

        async def all_changes() -> None:
            for label, parts in CHANGES.items():
                print(label, flush=True)
                found[label] = await tried(services, sets, check_change(parts, Path(folder)))
            await services.aclose()

        asyncio.run(all_changes())
    worse = {label: [row.tenant for row in rows if row.verdict == "worse"] for label, rows in found.items()}
    kept = all(row.done == "kept as it is" for rows in found.values() for row in rows if row.verdict == "worse")
    result = {label: [msgspec.to_builtins(row) for row in rows] for label, rows in found.items()}
    print(json.dumps({"worse": worse, "kept": kept, "rows": result}))
    return 0 if any(worse.values()) and kept else 1


if __name__ == "__main__":
    raise SystemExit(main())
