"""The tables of the input that sources have taken."""

from tussock.jobs.barriers.epoch_plan import Base
from tussock.jobs.catalog.definition import SourceDefinition, definition_of
from tussock.jobs.logical.statements import CreateSource
from tussock.statestore.hummock.cache import process_cache
from tussock.statestore.hummock.store import HummockStore
from tussock.statestore.meta.catalog import Relation
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.table.recalled_table import RecalledTable
from tussock.statestore.table.storage_table import StorageTable


def taken_table(meta: MetaStore, base: Base, source: Relation) -> StorageTable | None:
    """Return the table of a source's taken files at the base; None if the source is newer."""
    if source.created > base.version.epoch:
        return None
    version = base.version
    store = HummockStore(meta.objects, version, process_cache(), buffer=base.buffer)
    kind = RecalledTable if base.committed else StorageTable
    return kind(source.state_tables[0], store, version.epoch, version.mapping.vnode_count)


def statement_of(source: Relation) -> CreateSource:
    """Return the statement that would create a source in its current form."""
    definition = definition_of(source)
    assert isinstance(definition, SourceDefinition)
    return definition.statement
