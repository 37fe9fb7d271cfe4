"""The ledger of a sink: objects with the manifests of its epochs, the records of its history, and its last upkeep.

    <to>/_tussock/…                                    a sink in a folder or bucket: its readers can read it too
    <store>/publish/sinks/<identity>/<name>/_tussock/… any other sink

The identity is the store's (tussock.jobs.settings.home): a copy of a store starts with empty ledgers.
"""

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from tussock.jobs.delta.location import location_of
from tussock.jobs.settings.home import Home
from tussock.jobs.settings.publishing import PublishSettings
from tussock.statestore.objectstore.base import ObjectInfo, ObjectStore

LEDGERS = "publish/sinks/"


def ledger_of(settings: PublishSettings, store: ObjectStore, home: Home | None) -> ObjectStore:
    """Return the ledger of a sink. Raises BadStoreError for a folder that cannot be one."""
    if settings.is_folder:
        return location_of(settings.to).objects
    return _Part(store, f"{LEDGERS}{'' if home is None else home.id}/{settings.title}/")


class _Part:
    """The objects of a store whose names start with a prefix, without it. See ObjectStore."""

    def __init__(self, whole: ObjectStore, prefix: str) -> None:
        self.uri = whole.uri
        self._whole, self._prefix = whole, prefix

    def get(self, name: str) -> bytes:
        return self._whole.get(self._prefix + name)

    def get_ranges(self, name: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        return self._whole.get_ranges(self._prefix + name, ranges)

    def head(self, name: str) -> ObjectInfo:
        return self._without_prefix(self._whole.head(self._prefix + name))

    def put(self, name: str, data: bytes) -> None:
        self._whole.put(self._prefix + name, data)

    def put_if_absent(self, name: str, data: bytes) -> bool:
        return self._whole.put_if_absent(self._prefix + name, data)

    def list(self, prefix: str, start_after: str = "") -> Iterator[ObjectInfo]:
        after = self._prefix + start_after if start_after else ""
        return map(self._without_prefix, self._whole.list(self._prefix + prefix, after))

    def delete(self, names: Iterable[str]) -> None:
        self._whole.delete([self._prefix + name for name in names])

    def _without_prefix(self, info: ObjectInfo) -> ObjectInfo:
        return msgspec.structs.replace(info, name=info.name.removeprefix(self._prefix))
