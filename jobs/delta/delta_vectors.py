"""The files that the deltalake package reads without listing them: deletion vectors, and sidecars of checkpoints.

This module finds their names in the newest checkpoint (classic, in several parts, or version 2 with sidecars) and in
the later commits.
"""

import io
import posixpath
import re
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow.parquet as pq

from tussock.statestore.decoding import decode_json
from tussock.statestore.objectstore.base import ObjectStore

_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint(?:\.[\w.-]+)?\.(parquet|json)")
LOG, _SIDECARS = "_delta_log", "_sidecars"
_INLINE, _RELATIVE = "i", "u"
_CHARACTERS_OF_ID = 20  # of a relative file's id, which follows an optional prefix


def unlisted_files(log: ObjectStore, version: int, actions_of: Callable[[int], Iterator[dict[str, Any]]]) -> set[str]:
    """Return the names of these files, up to a version, as the log names them: relative to the table, or absolute.

    Args:
        log: the folder of the log.
        actions_of: returns the actions of a commit.

    Cost: one LIST, the columns with descriptors of the newest checkpoint, and the commits after it.
    """
    checkpoints: dict[int, list[str]] = {}
    for info in log.list(""):
        if (match := _CHECKPOINT.fullmatch(info.name)) is not None and int(match[1]) <= version:
            checkpoints.setdefault(int(match[1]), []).append(info.name)
    first = max(checkpoints, default=-1)
    names = set[str]()
    for name in checkpoints.get(first, ()):
        names |= _vector_files(_checkpoint_actions(log, name))
    for later in range(first + 1, version + 1):
        names |= _vector_files(actions_of(later))
    return names


def _vector_files(actions: Iterator[dict[str, Any]]) -> set[str]:
    names = set[str]()
    for action in actions:
        if (vector := (action.get("add") or {}).get("deletionVector")) and (name := _vector_file(vector)) is not None:
            names.add(name)
        if sidecar := action.get("sidecar"):
            names.add(posixpath.join(LOG, _SIDECARS, sidecar["path"]))
    return names


def _vector_file(vector: dict[str, Any]) -> str | None:
    """Return the file of a descriptor; None if the descriptor contains the vector."""
    kind, text = vector["storageType"], vector["pathOrInlineDv"]
    if kind == _INLINE:
        return None
    if kind == _RELATIVE:
        return posixpath.join(text[:-_CHARACTERS_OF_ID], "deletion_vector.bin")
    return str(text)


def _checkpoint_actions(log: ObjectStore, name: str) -> Iterator[dict[str, Any]]:
    data = log.get(name)
    actions = _json_lines(data) if name.endswith(".json") else _checkpoint_rows(data)
    for action in actions:
        yield action
        if sidecar := action.get("sidecar"):
            yield from _checkpoint_rows(log.get(f"{_SIDECARS}/{sidecar['path'].rpartition('/')[2]}"))


def _json_lines(data: bytes) -> Iterator[dict[str, Any]]:
    return (decode_json(line, dict[str, Any]) for line in data.splitlines() if line.strip())


def _checkpoint_rows(data: bytes) -> Iterator[dict[str, Any]]:
    file = pq.ParquetFile(io.BytesIO(data))
    leaves = [column.path for column in (file.schema.column(i) for i in range(len(file.schema)))]
    columns = [path for path in leaves if path.startswith(("add.deletionVector.", "sidecar."))]
    if columns:
        for batch in file.iter_batches(columns=columns):
            yield from batch.to_pylist()
