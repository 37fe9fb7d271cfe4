"""Delta tables in folders that the deltalake package cannot open: in HDFS, and where it reads `a b` for `a%20b`.

The package reads such a table through a temporary folder that contains the table's entries under their own names: links
to the entries of a local table, or copies of the objects in a bucket.
"""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from tussock.statestore.local_disk import TemporaryFolder
from tussock.statestore.objectstore.base import ObjectNotFoundError, ObjectStore
from tussock.statestore.objectstore.open import open_bucket

_ROWS = ".parquet"
_PARALLEL = 16


def mirror_table(bucket: str, name: str, options: Mapping[str, str], *, rows: bool) -> TemporaryFolder:
    """Create a folder with a table's entries. It is deleted with the returned object.

    Args:
        bucket, name: of the table's folder, as in DeltaPlace.
        options: the server options of the bucket.
        rows: include the files with rows, which a read of the log does not need.

    Cost: for a local table, one link per entry of its folder; in a bucket, one LIST and one GET per object.
    """
    folder = TemporaryFolder("delta")
    if not bucket:
        for entry in Path("/", name).iterdir() if Path("/", name).is_dir() else ():
            if rows or entry.suffix != _ROWS:
                Path(folder.name, entry.name).symlink_to(entry)
        return folder
    store = open_bucket(bucket, name, options)
    wanted = [
        info.name for info in store.list("") if rows or "_delta_log/" in info.name or not info.name.endswith(_ROWS)
    ]
    with ThreadPoolExecutor(_PARALLEL) as pool:
        list(pool.map(lambda object_name: _copy_object(store, object_name, Path(folder.name)), wanted))
    return folder


def _copy_object(store: ObjectStore, name: str, folder: Path) -> None:
    """Copy an object to a file. Names with `..` cannot leave the folder."""
    file = folder / name
    if not name.endswith("/") and file.resolve().is_relative_to(folder.resolve()):
        file.parent.mkdir(parents=True, exist_ok=True)
        with suppress(ObjectNotFoundError):  # a cleanup of the log has removed it since the listing
            file.write_bytes(store.get(name))
