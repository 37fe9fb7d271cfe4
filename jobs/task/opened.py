"""What a worker process opens or decodes once and keeps from task to task."""

from functools import lru_cache

import msgspec

from statestore.meta.version import HummockVersion
from statestore.objectstore.base import ObjectStore
from statestore.objectstore.open import open_object_store


@lru_cache(maxsize=4)
def opened_objects(uri: str) -> ObjectStore:
    """The object store at `uri`, opened once a process."""
    return open_object_store(uri)


@lru_cache(maxsize=2)
def decoded_version(data: bytes) -> HummockVersion:
    """The version that an epoch's task carries, decoded once a process."""
    return msgspec.json.decode(data, type=HummockVersion)
