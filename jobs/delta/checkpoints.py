"""Checkpoints of a Delta log, in every form that writers use.

    <version>.checkpoint.parquet                  classic
    <version>.checkpoint.<part>.<parts>.parquet   classic, in parts; its writer may have died before the last part
    <version>.checkpoint.<id>.parquet or .json    version 2: its files may be in sidecars, _sidecars/<name>.parquet

A version may have several checkpoints, of equal content.
Source: https://github.com/delta-io/delta/blob/master/PROTOCOL.md, "Checkpoints".
"""

import io
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pyarrow.parquet as pq

from tussock.statestore.decoding import decode_json

SIDECARS = "_sidecars"
_WHOLE = re.compile(r"(\d{20})\.checkpoint\.(?:[\w-]+\.json|(?:[\w-]+\.)?parquet)")
_PART = re.compile(r"(\d{20})\.checkpoint\.(\d{10})\.(\d{10})\.parquet")


def newest_checkpoints(names: Iterable[str], version: int) -> tuple[int, list[tuple[str, ...]]]:
    """Return the newest version that has a complete checkpoint, and the files of each of its checkpoints.

    Args:
        names: of the log's entries, relative to its folder.
        version: the last version to consider.

    Returns: (-1, []) if there is none.
    """
    found: dict[int, dict[int, list[str]]] = {}  # by version and number of parts
    whole: dict[int, list[tuple[str, ...]]] = {}
    for name in sorted(names):
        if (part := _PART.fullmatch(name)) is not None:
            found.setdefault(int(part[1]), {}).setdefault(int(part[3]), []).append(name)
        elif (match := _WHOLE.fullmatch(name)) is not None:
            whole.setdefault(int(match[1]), []).append((name,))
    for number, by_parts in found.items():
        complete = [tuple(parts) for count, parts in by_parts.items() if len(parts) == count]
        if complete:
            whole.setdefault(number, []).extend(complete)
    newest = max((number for number in whole if number <= version), default=-1)
    return newest, whole.get(newest, [])


def read_checkpoint(get: Callable[[str], bytes], names: Sequence[str], columns: tuple[str, ...]) -> Iterator[Any]:
    """Yield the actions of a checkpoint and of its sidecars.

    Args:
        get: reads an object of the log, by its name relative to the log's folder.
        names: the files of one checkpoint.
        columns: the beginnings of the columns to read, such as `add.`; `sidecar` is read too.

    Cost: a GET per file.
    """
    for name in names:
        data = get(name)
        for action in _json_lines(data) if name.endswith(".json") else _rows(data, (*columns, "sidecar.")):
            yield action
            if sidecar := action.get("sidecar"):
                yield from _rows(get(f"{SIDECARS}/{sidecar['path'].rpartition('/')[2]}"), columns)


def _json_lines(data: bytes) -> Iterator[dict[str, Any]]:
    return (decode_json(line, dict[str, Any]) for line in data.splitlines() if line.strip())


def _rows(data: bytes, columns: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    file = pq.ParquetFile(io.BytesIO(data))
    leaves = [column.path for column in (file.schema.column(i) for i in range(len(file.schema)))]
    if wanted := [path for path in leaves if path.startswith(columns)]:
        for batch in file.iter_batches(columns=wanted):
            yield from batch.to_pylist(maps_as_pydicts="strict")
