"""Copies an object from one store to another, within the server if one S3 server holds both."""

from pathlib import Path

from tussock.statestore.local_disk import TemporaryFolder
from tussock.statestore.objectstore.base import ObjectStore
from tussock.statestore.objectstore.local import LocalObjectStore
from tussock.statestore.objectstore.open import as_s3

_PIECE_BYTES = 64 << 20


def copy_object(source: ObjectStore, of: str, target: ObjectStore, name: str, etag: str, version: str = "") -> None:
    """Copy the object `of` in `source` to `name` in `target`. Replaces an existing object.

    Args:
        etag: expected ETag of `of`. A copying server checks it; otherwise the caller checks the source afterwards.
        version: version id in a versioned S3 bucket; empty for the newest version.

    Raises: ObjectNotFoundError if `of` is deleted or its ETag differs; errors of both stores.
    Cost: within one S3 server a HEAD and a COPY, without a download. Otherwise one read and one write of the object,
        through a temporary file if the target can upload one.
    """
    of_s3, in_s3 = as_s3(source), as_s3(target)
    if of_s3 is not None and in_s3 is not None and in_s3.is_beside(of_s3):
        in_s3.copy_from(of_s3, of, name, etag, version)
    elif (into := in_s3 or (target if isinstance(target, LocalObjectStore) else None)) is not None:
        if isinstance(source, LocalObjectStore):
            source.head(of)
            into.put_file(name, source.root / of)
            return
        with TemporaryFolder("copy") as folder:
            with (file := Path(folder, "object")).open("wb") as content:
                for start in range(0, size := source.head(of).size, _PIECE_BYTES):
                    content.write(source.get_ranges(of, [(start, min(_PIECE_BYTES, size - start))])[0])
            into.put_file(name, file)
    else:
        target.put(name, source.get(of))
