"""The page of faults says what the tests of this folder do."""

from __future__ import annotations

from tests.faults.table import PAGE, markdown, rows


def test_the_page_holds_the_table_of_today() -> None:
    assert markdown(rows()) in PAGE.read_text(encoding="utf-8"), "python -m tests.faults.table --write"


def test_every_engine_has_the_faults_of_its_kind() -> None:
    servers = {one.fault for one in rows("qdrant")} & {one.fault for one in rows("milvus")}
    assert len(servers) >= 10
    assert len({(one.engine, one.fault) for one in rows()}) == len(rows())
    assert len(rows("embedded")) >= 10
