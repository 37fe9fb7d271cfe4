"""The locators that a pipeline's sinks use, by the places of their tables. Others are removed with the vacuum."""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tussock.jobs.delta.location import folder_name, location_of
from tussock.jobs.locator.document import folder_of, remove_unused
from tussock.jobs.locator.edit import LocatorEdit
from tussock.jobs.locator.locator import LocatedFile, Locator
from tussock.jobs.logical.relation_names import relation_key
from tussock.jobs.reading.keyed_rows import RowsWithKeys
from tussock.jobs.settings.publishing import PublishSettings
from tussock.jobs.sinks.base import ForeignTableError
from tussock.statestore.meta.store import MetaStore

T = TypeVar("T")

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


def move_files(
    locator: Locator,
    gone: Sequence[LocatedFile],
    come: Iterable[T],
    locate_file: Callable[[LocatorEdit, T], int],
    place: str,
) -> Locator:
    """Return the locator of a table after another program replaced files by others with the same rows.

    Args:
        locate_file: adds a new file, and returns its live rows.
        place: of the table.

    Raises: ForeignTableError if the number of rows is another one.
    """
    edit = LocatorEdit(locator)
    edit.drop_files(gone)
    if sum(locate_file(edit, file) for file in come) != sum(file.live_rows for file in gone):
        raise ForeignTableError(place, "was rewritten by another program with other rows")
    return edit.write_and_open(locator.document.note)


def live_rows(rows: pa.Table, file: LocatedFile, keys: pa.BinaryArray) -> RowsWithKeys:
    """Return the rows of a file that are not deleted. `rows`: all rows of the file; `keys`: of its live rows."""
    if file.deleted:
        dead = pa.array(file.deleted.to_array(), pa.int64())
        rows = rows.filter(pc.invert(pc.is_in(pa.array(np.arange(rows.num_rows)), value_set=dead)))
    return RowsWithKeys(rows, pa.table([keys], names=["key"]))


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
