"""The objects that the newest version needs, for processes that read a store while others work on it.

Vacuum removes an object only if the newest version and all pinned versions do without it. A process without a pin may
still meet such an object: it listed the object before, or reads a version that is no longer the newest. So an object
that has vanished is looked up here first. Only if it is still needed, it is lost.
"""

import logging
from collections.abc import Callable
from typing import TypeVar

from tussock.statestore.hummock.errors import MissingSstError
from tussock.statestore.meta.names import BARRIERS, DATA, MANIFESTS, PINS, epoch_of_barrier, number_in
from tussock.statestore.meta.pages import names_in
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.meta.version import HummockVersion

log = logging.getLogger(__name__)

T = TypeVar("T")


def is_needed(meta: MetaStore, name: str) -> bool:
    """Whether the store still needs an object that a process did not find.

    Cost: the newest version; for an SST also the pins and their versions. Raises DamagedDocumentError.
    """
    if name.startswith(PINS):
        return False  # its reader has ended
    version = meta.read_latest(proven=True)
    if name.startswith(MANIFESTS):
        return (epoch := number_in(name)) is None or epoch >= version.min_readable_epoch
    if name.startswith(BARRIERS):
        return (epoch := epoch_of_barrier(name)) is None or epoch >= version.min_readable_epoch
    if not name.startswith(DATA):
        return True  # never removed, or replaced by others
    others = {pin.version for pin in meta.all_pins()} | {branch.version for branch in version.branches}
    return name in names_in(version) or any(name in names_in(meta.read_version(i)) for i in others)


def on_newest(meta: MetaStore, work: Callable[[HummockVersion], T]) -> T:
    """Do work that reads the SSTs of the newest version without a pin.

    If compaction and vacuum remove one meanwhile, the work begins again on the version that is then the newest.

    Raises: MissingSstError if the store still needs the SST; errors of `work`. Requires: `work` can be repeated.
    """
    while True:
        version = meta.read_latest()
        try:
            return work(version)
        except MissingSstError as err:
            if is_needed(meta, err.name):
                raise
            log.info("%s was compacted and removed: beginning again on the newest version", err.name)
