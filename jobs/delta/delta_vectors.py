"""The files that the deltalake package reads without listing them: deletion vectors, and sidecars of checkpoints.

This module finds their names in the newest checkpoint (classic, in several parts, or version 2 with sidecars) and in
the later commits.
"""

import posixpath
from collections.abc import Callable, Iterator
from typing import Any

from tussock.jobs.delta.checkpoints import SIDECARS, newest_checkpoints, read_checkpoint
from tussock.statestore.objectstore.base import ObjectStore

LOG = "_delta_log"
_INLINE, _RELATIVE = "i", "u"
_CHARACTERS_OF_ID = 20  # of a relative file's id, which follows an optional prefix


def unlisted_files(log: ObjectStore, version: int, actions_of: Callable[[int], Iterator[dict[str, Any]]]) -> set[str]:
    """Return the names of these files, up to a version, as the log names them: relative to the table, or absolute.

    Args:
        log: the folder of the log.
        actions_of: returns the actions of a commit.

    Cost: one LIST, the columns with descriptors of the newest checkpoint, and the commits after it.
    """
    first, checkpoints = newest_checkpoints((info.name for info in log.list("")), version)
    names = set[str]()
    for files in checkpoints:  # all of them: the package may read any
        names |= _vector_files(read_checkpoint(log.get, files, ("add.deletionVector.",)))
    for later in range(first + 1, version + 1):
        names |= _vector_files(actions_of(later))
    return names


def _vector_files(actions: Iterator[dict[str, Any]]) -> set[str]:
    names = set[str]()
    for action in actions:
        if (vector := (action.get("add") or {}).get("deletionVector")) and (name := _vector_file(vector)) is not None:
            names.add(name)
        if sidecar := action.get("sidecar"):
            names.add(posixpath.join(LOG, SIDECARS, sidecar["path"]))
    return names


def _vector_file(vector: dict[str, Any]) -> str | None:
    """Return the file of a descriptor; None if the descriptor contains the vector."""
    kind, text = vector["storageType"], vector["pathOrInlineDv"]
    if kind == _INLINE:
        return None
    if kind == _RELATIVE:
        return posixpath.join(text[:-_CHARACTERS_OF_ID], "deletion_vector.bin")
    return str(text)
