"""The locators that a pipeline's sinks use, by the places of their tables. Others are removed with the vacuum."""

from collections.abc import Callable, Iterable, Sequence

from tussock.jobs.delta.location import folder_name, location_of
from tussock.jobs.locator.document import folder_of, remove_unused
from tussock.jobs.locator.locator import LocatedFile
from tussock.jobs.logical.relation_names import relation_key
from tussock.jobs.settings.publishing import PublishSettings
from tussock.statestore.meta.store import MetaStore

_SMALL_BYTES = 8 << 20  # smaller files are merged by upkeep
_DELETED_SHARE = 0.2  # files with more deleted rows are rewritten
_REWRITTEN_BYTES = 1 << 30  # of files, in one upkeep
_SETTLED_MS = 3_600_000  # younger objects may belong to a publish with other settings that still runs


def locator_folder(kind: str, place: str) -> str:
    """Return the folder of a table's locator. `place`: of the table."""
    return folder_of(f"{kind} {place}")


def drop_locators(meta: MetaStore, sinks: Iterable[PublishSettings], now_ms: int) -> int:
    """Remove the locators of tables that no sink writes any more. Returns the number of objects.

    Args:
        sinks: all sinks of the pipeline.

    A sink that returns to such a table makes its locator again from the key columns. Cost: one LIST.
    """
    catalog, used = meta.read_latest().catalog, set[str]()
    for sink in sinks:
        if sink.is_folder:
            chosen = None if sink.relations is None else {relation_key(name) for name in sink.relations}
            names = [r.name for r in catalog.live_relations() if chosen is None or r.name in chosen]
            location = location_of(sink.to)
            used |= {locator_folder(sink.kind, location.table_uri(folder_name(name))) for name in names}
    return remove_unused(meta.objects, used, now_ms - _SETTLED_MS)


def files_to_rewrite(files: Sequence[LocatedFile], size_of: Callable[[LocatedFile], int]) -> list[LocatedFile]:
    """Return the files of a published table that upkeep rewrites, by number; at most _REWRITTEN_BYTES.

    These are files with many deleted rows, and small files, unless there is only one file to rewrite and it is small.
    """
    sizes = {file.number: size_of(file) for file in files}
    worn = [file for file in files if len(file.deleted) > _DELETED_SHARE * file.rows]
    small = [file for file in files if file not in worn and sizes[file.number] < _SMALL_BYTES]
    chosen, total = list[LocatedFile](), 0
    for file in (*worn, *(small if len(small) + len(worn) > 1 else ())):
        if (total := total + sizes[file.number]) > _REWRITTEN_BYTES and chosen:
            break
        chosen.append(file)
    return sorted(chosen, key=lambda file: file.number)
