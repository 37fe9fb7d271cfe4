"""A catalog of hundreds of views: a new view costs as much as its own input, not as the catalog."""

import msgspec
import pytest

from tests.support.faulty_store import FaultyObjectStore
from tests.support.jobs.plan.catalogs import catalog_of, counted, joined, scan, table, view
from tests.support.memory_store import MemoryObjectStore
from tussock.jobs.catalog import create, definition
from tussock.jobs.catalog.apply import apply_statement
from tussock.jobs.catalog.statement_log import PendingCatalog
from tussock.jobs.logical.statements import Statement
from tussock.statestore.meta.catalog import Catalog, Relation
from tussock.statestore.meta.store import MetaStore


def town(views: int) -> list[Statement]:
    """A table and views over it; every second view reads the one before."""
    plans = (counted(scan(f"v{n - 1}", 2) if n % 2 else scan("t"), 1) for n in range(views))
    return [table("t"), *(view(f"v{n}", plan) for n, plan in enumerate(plans))]


@pytest.mark.parametrize("views", [2, 300])
def test_one_more_view_decodes_the_definitions_that_it_reads_and_no_other(
    views: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = catalog_of(*town(views))
    decoded: list[str] = []

    def counting(relation: Relation) -> definition.Definition:
        decoded.append(relation.name)
        return definition_of(relation)

    definition_of = definition.definition_of
    for module in (definition, create):
        monkeypatch.setattr(module, "definition_of", counting)
    late = view("late", joined(scan("t"), scan("v1", 2), 1, 0))
    assert len(apply_statement(catalog, late, 2).live_relations()) == views + 2
    assert set(decoded) == {"t", "v1"}
    assert len(decoded) <= 4


@pytest.mark.parametrize("views", [2, 300])
def test_the_pending_catalog_reads_the_new_entry_of_a_long_log_and_no_other(views: int) -> None:
    objects = MemoryObjectStore()
    MetaStore.init(objects, vnode_count=8)
    store = FaultyObjectStore(objects)
    meta = MetaStore(store, "w", lambda: 0)
    for n, statement in enumerate(town(views)):
        meta.append_log(f"c{n}", msgspec.json.encode(statement))
    pending = PendingCatalog(meta)
    version = meta.read_latest()
    assert len(pending.read_catalog(version).live_relations()) == views + 1
    meta.append_log("late", msgspec.json.encode(view("late", counted(scan("t"), 1))))
    store.calls.clear()
    after: Catalog = pending.read_catalog(version)
    assert len(after.live_relations()) == views + 2
    reads = [name for operation, name in store.calls if operation == "get" and "/log/" in name]
    assert len(reads) == 1
    assert len(store.calls) < 12
