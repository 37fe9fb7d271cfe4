"""Copies an object from one store into another, by the server itself where one has both."""

from pathlib import Path
from tempfile import NamedTemporaryFile

from tussock.statestore.objectstore.base import ObjectStore
from tussock.statestore.objectstore.local import LocalObjectStore

_PIECE_BYTES = 64 << 20


def copy_object(source: ObjectStore, of: str, target: ObjectStore, name: str, etag: str, version: str = "") -> None:
    """Write `name` in `target` with the bytes of `of` in `source`; an object of that name is replaced.

    Args:
        etag: of the object as it is to be copied. A server that copies checks it; else the caller looks again afterwards.
        version: of an S3 bucket that keeps versions; the newest where empty.

    Raises: ObjectNotFoundError where it is gone, or is another one now; errors of both stores.
    Cost: within one S3 server a HEAD and a COPY, and no byte comes here; else the object once, through a file where the target takes one.
    """
    from tussock.statestore.objectstore.s3 import S3ObjectStore  # here, because importing boto3 takes 0.3 s that local stores can save

    if isinstance(source, S3ObjectStore) and isinstance(target, S3ObjectStore) and target.is_beside(source):
        target.copy_from(source, of, name, etag, version)
    elif isinstance(target, S3ObjectStore | LocalObjectStore):
        if isinstance(source, LocalObjectStore):
            source.head(of)
            target.put_file(name, source.root / of)
            return
        with NamedTemporaryFile(prefix="tussock-copy-") as file:
            for start in range(0, size := source.head(of).size, _PIECE_BYTES):
                file.write(source.get_ranges(of, [(start, min(_PIECE_BYTES, size - start))])[0])
            file.flush()
            target.put_file(name, Path(file.name))
    else:
        target.put(name, source.get(of))
