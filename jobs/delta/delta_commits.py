"""Entries of a Delta log that this project writes, and deletion vectors.

A deletion vector marks rows of a data file as deleted, by their positions. The vectors of one commit are in one file:

    version 1 (1 byte), then for each vector: size (4 bytes) | magic (4 bytes, little-endian), bitmap | crc32 (4 bytes)

Sizes and checksums are big-endian, and a size counts the magic. The bitmap is a 64-bit Roaring bitmap in the portable
format. A descriptor in the log has the file's name, the offset of a vector, its size and its number of rows.
Source: https://github.com/delta-io/delta/blob/master/PROTOCOL.md, "Deletion Vector Format".
"""

import base64
import hashlib
import io
import json
import struct
import uuid
import zlib
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tussock.jobs.delta.checkpoints import SIDECARS, newest_checkpoints, read_checkpoint
from tussock.jobs.delta.delta_errors import DeltaLogError
from tussock.statestore.decoding import decoder_of
from tussock.statestore.local_disk import TemporaryFolder
from tussock.statestore.objectstore.base import ObjectNotFoundError, ObjectStore
from tussock.statestore.objectstore.local import LocalObjectStore

if TYPE_CHECKING:
    from pyroaring import BitMap64

    from tussock.jobs.delta.location import Location

Action = dict[str, Any]

VECTORS = "deletionVectors"
LOG = "_delta_log"
_PARALLEL = 16
_Z85 = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_B85 = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_MAGIC = 1681511377
_FRAME_BYTES = 8  # of the size and the checksum
_ID_CHARACTERS = 20  # of a file's id in base 85
_SIZED_COLUMNS = 32  # columns with statistics, as in Delta's default
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896  # of Python's dates, since 1970
_LONGEST_TEXT = 32  # longer ones would have to be cut, and a cut maximum is too small


#: Returns an action, or a part of one, from its JSON text.
decode_action = decoder_of(Action).decode


def commit_name(version: int) -> str:
    """Return the name of a log entry, relative to the table."""
    return f"{LOG}/{version:020}.json"


def encode_commit(actions: list[Action]) -> bytes:
    """Return the bytes of a log entry."""
    return b"".join(msgspec.json.encode(action) + b"\n" for action in actions)


def read_commit(objects: ObjectStore, folder: str, version: int) -> list[Action] | None:
    """Return the actions of a log entry; None if it is gone. One GET. Raises DeltaLogError."""
    try:
        lines = objects.get(f"{folder}/{commit_name(version)}").splitlines()
    except ObjectNotFoundError:
        return None
    try:
        return [decode_action(line) for line in lines if line.strip()]
    except msgspec.MsgspecError as err:
        raise DeltaLogError(f"{objects.uri}/{folder}", f"entry {commit_name(version)} is damaged: {err}") from err


def read_adds(objects: ObjectStore, folder: str, version: int) -> dict[str, Action]:
    """Return the files of a version with their `add` actions, by path as in the log.

    Raises DeltaLogError. Cost: a checkpoint, and the entries after it.
    """
    log = f"{folder}/{LOG}/"
    names = (info.name.removeprefix(log) for info in objects.list(log))
    first, checkpoints = newest_checkpoints(names, version)
    adds = {}
    if checkpoints:
        for action in read_checkpoint(lambda name: objects.get(log + name), checkpoints[0], ("add.",)):
            if add := action.get("add"):
                adds[add["path"]] = {name: value for name, value in add.items() if value is not None}
    for number in range(first + 1, version + 1):
        if (actions := read_commit(objects, folder, number)) is None:
            raise DeltaLogError(f"{objects.uri}/{folder}", f"entry {commit_name(number)} is missing")
        for action in actions:
            if remove := action.get("remove"):
                adds.pop(remove["path"], None)
        adds |= {action["add"]["path"]: action["add"] for action in actions if action.get("add")}
    return adds


def write_checkpoint(location: "Location", folder: str, version: int) -> None:
    """Write a checkpoint of a table's newest version.

    In a bucket, the package reads a local copy of the entries since the last checkpoint, because it reads each several
    times. Cost: a LIST, a GET per entry, and two PUTs.
    """
    from deltalake import DeltaTable

    if location.address is None:
        DeltaTable(location.delta_url(folder)).create_checkpoint()
        return
    objects, log = location.objects, f"{folder}/{LOG}/"
    names = [info.name.removeprefix(log) for info in objects.list(log)]
    numbers = {name: int(name[:20]) for name in names if name[:20].isdecimal()}
    last, checkpoints = newest_checkpoints(names, version)
    wanted = [n for n in names if (last < numbers[n] <= version if n in numbers else n.startswith(f"{SIDECARS}/"))]
    wanted += [name for checkpoint in checkpoints[:1] for name in checkpoint]
    with TemporaryFolder("checkpoint") as copy, ThreadPoolExecutor(_PARALLEL) as pool:
        local = LocalObjectStore(Path(copy))

        def copy_entry(name: str) -> None:
            with suppress(ObjectNotFoundError):  # a cleanup has removed it since the listing, such as an old sidecar
                local.put(f"{LOG}/{name}", objects.get(log + name))

        list(pool.map(copy_entry, wanted))
        DeltaTable(copy).create_checkpoint()
        for name in (f"{version:020}.checkpoint.parquet", "_last_checkpoint"):  # the hint comes last
            objects.put(log + name, local.get(f"{LOG}/{name}"))


def removal_of(add: Action, now_ms: int, *, data_change: bool = True) -> Action:
    """Return the action that removes a file."""
    remove = {
        "path": add["path"],
        "deletionTimestamp": now_ms,
        "dataChange": data_change,
        "extendedFileMetadata": True,
        "partitionValues": add.get("partitionValues") or {},
        "size": add["size"],
    }
    if (vector := add.get("deletionVector")) is not None:
        remove["deletionVector"] = vector
    return {"remove": remove}


def with_vector(add: Action, vector: Action) -> Action:
    """Return the `add` of a file with another deletion vector, whose minima and maxima may belong to deleted rows."""
    stats = json.loads(add.get("stats") or "{}") | {"tightBounds": False}
    return {**add, "dataChange": True, "stats": _text_of_stats(stats), "deletionVector": vector}


def file_add(path: str, size: int, rows: pa.Table, now_ms: int, *, data_change: bool = True) -> Action:
    """Return the `add` of a new file."""
    return {
        "path": path,
        "partitionValues": {},
        "size": size,
        "modificationTime": now_ms,
        "dataChange": data_change,
        "stats": _text_of_stats(statistics_of(rows)),
    }


def _text_of_stats(stats: Action) -> str:
    """Return statistics as JSON without escapes: arrow-rs, and so deltalake, decodes those of U+20000 as U+10000."""
    return json.dumps(stats, ensure_ascii=False)


def statistics_of(rows: pa.Table) -> Action:
    """Return the statistics by which readers skip files: the number of rows, and minima and maxima."""
    lows: Action = {}
    highs: Action = {}
    nulls: Action = {}
    for name in rows.column_names[:_SIZED_COLUMNS]:
        column = rows[name]
        if pa.types.is_nested(column.type):
            continue
        nulls[name] = column.null_count
        if column.null_count < len(column) and (bounds := _bounds_of(column)) is not None:
            lows[name], highs[name] = bounds
    return {"numRecords": rows.num_rows, "minValues": lows, "maxValues": highs, "nullCount": nulls, "tightBounds": True}


def _bounds_of(column: pa.ChunkedArray) -> tuple[Any, Any] | None:
    """Return the bounds of types whose text is the same for every reader."""
    kind = column.type
    if not (pa.types.is_integer(kind) or pa.types.is_date(kind) or pa.types.is_string(kind)):
        return None
    bounds = pc.min_max(column)
    if pa.types.is_date(kind):  # Python has no dates before the year 1 and after 9999
        first, last = bounds.values()
        return None if first.value < _FIRST_DAY or last.value > _LAST_DAY else (str(first), str(last))
    least, greatest = bounds.as_py().values()
    if pa.types.is_string(kind) and max(len(least), len(greatest)) > _LONGEST_TEXT:
        return None
    return least, greatest


def parquet_bytes(rows: pa.Table) -> bytes:
    """Return rows as a Parquet file. Equal rows have equal bytes."""
    out = io.BytesIO()
    pq.write_table(rows, out, compression="zstd", store_schema=False)
    return out.getvalue()


def content_name(data: bytes, salt: str) -> str:
    """Return the name of a data file, by its content: a repeated publish writes the same object.

    `salt` distinguishes commits, because a commit must not add a file that it removes.
    """
    return f"part-{hashlib.sha256(salt.encode() + data).hexdigest()[:32]}.parquet"


def encode_vectors(vectors: Mapping[str, "BitMap64"], salt: str) -> tuple[str, bytes, dict[str, Action]]:
    """Return the name and the bytes of a file with deletion vectors, and the descriptor of each, by path.

    The name depends on the vectors, their paths and `salt`: upkeep may remove an earlier file with equal vectors while
    a commit adds this one.
    """
    out, places = bytearray(b"\x01"), {}
    for path, vector in vectors.items():
        data = frame_vector(vector)
        places[path] = (len(out), len(data) - _FRAME_BYTES, len(vector))
        out += data
    name = uuid.UUID(bytes=hashlib.sha256("\n".join([salt, *vectors, ""]).encode() + out).digest()[:16])
    descriptors = {
        path: {
            "storageType": "u",
            "pathOrInlineDv": _to_z85(name.bytes),
            "offset": offset,
            "sizeInBytes": size,
            "cardinality": count,
        }
        for path, (offset, size, count) in places.items()
    }
    return f"deletion_vector_{name}.bin", bytes(out), descriptors


def frame_vector(vector: "BitMap64") -> bytes:
    """Return a vector with its size, magic number and checksum, as in Delta and in Iceberg."""
    data = struct.pack("<i", _MAGIC) + vector.serialize()
    return struct.pack(">i", len(data)) + data + struct.pack(">I", zlib.crc32(data))


def vector_file(descriptor: Action) -> str | None:
    """Return the file of a vector, relative to the table; None if the descriptor contains it or names another place."""
    if descriptor["storageType"] != "u":
        return None
    text = descriptor["pathOrInlineDv"]
    name = f"deletion_vector_{uuid.UUID(bytes=_of_z85(text[-_ID_CHARACTERS:]))}.bin"
    prefix = text[:-_ID_CHARACTERS]
    return f"{prefix}/{name}" if prefix else name


def read_vector(objects: ObjectStore, folder: str, descriptor: Action) -> "BitMap64":
    """Return the deleted positions of a descriptor. One GET at most. Raises DeltaLogError."""
    from pyroaring import BitMap64

    if descriptor["storageType"] == "i":
        return BitMap64.deserialize(_of_z85(descriptor["pathOrInlineDv"])[4 : descriptor["sizeInBytes"]])
    if (name := vector_file(descriptor)) is None:
        raise DeltaLogError(f"{objects.uri}/{folder}", "a deletion vector is outside of the table's folder")
    size = descriptor["sizeInBytes"]
    (data,) = objects.get_ranges(f"{folder}/{name}", [(descriptor.get("offset") or 0, size + 8)])
    content = data[4 : 4 + size]
    if struct.unpack(">i", data[:4])[0] != size or struct.unpack(">I", data[4 + size :])[0] != zlib.crc32(content):
        raise DeltaLogError(f"{objects.uri}/{folder}", f"the deletion vectors in {name} are damaged")
    return BitMap64.deserialize(content[4:])


def _to_z85(data: bytes) -> str:
    return base64.b85encode(data).translate(bytes.maketrans(_B85, _Z85)).decode()


def _of_z85(text: str) -> bytes:
    return base64.b85decode(text.encode().translate(bytes.maketrans(_Z85, _B85)))
