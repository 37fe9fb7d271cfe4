"""Measure the records of files before an epoch takes them: their number, and their bytes when they are decoded.

A footer has the number of rows and the bytes of values of fixed width. The bytes of texts that share a dictionary, and
the lines of compressed text, are known only after a read, which keeps nothing in memory. A damaged file is measured as
far as it can be read; the reader of its records reports the damage.
"""

import bz2
import io
import lzma
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tussock.jobs.sources.avro_schema import MAGIC, avro_long, avro_metadata
from tussock.jobs.sources.file_portions import LEAST_PORTION_BYTES, ROW_BYTES, FileRecords
from tussock.jobs.sources.parquet_footer import footer_of
from tussock.jobs.sources.pins import PinnedFile, open_pinned
from tussock.statestore.objectstore.range_file import RangeFile

_BLOCK_BYTES = 1 << 20
_REQUEST_BYTES = 8 << 20  # of an object
_SHORTEST_LINE = 2
_FEW_ROWS = 256  # of a batch that may have large texts
DAMAGED = (OSError, EOFError, zlib.error, lzma.LZMAError, ValueError)
_GZIP, _ZLIB, _RAW = 31, 15, -15  # windows of zlib


@contextmanager
def open_file_bytes(file: PinnedFile, options: Mapping[str, str]) -> Iterator[BinaryIO]:
    """Open the bytes of a file. `options`: the source's, which locate an object's server."""
    if local := file.local_path:
        with Path(local).open("rb") as stream:
            yield stream
        return
    store, name = open_pinned(file, options)
    yield io.BufferedReader(cast(Any, RangeFile(store, name, file.size)), _REQUEST_BYTES)


# --- text ---------------------------------------------------------------------------------------------------------


def measure_text(file: PinnedFile, options: Mapping[str, str], separator: bytes) -> FileRecords:
    """FileRecords a text file, also a compressed one. A record ends with `separator`, or with the file.

    Cost: one read of the file, except of a small object, which may not have many lines.
    """
    if (
        _suffix_of(file) not in _UNPACKED
        and not file.local_path
        and file.size // _SHORTEST_LINE * ROW_BYTES <= LEAST_PORTION_BYTES
    ):
        return FileRecords(1, file.size)
    size = records = longest = open_bytes = 0
    with suppress(*DAMAGED):
        for block in unpack_file(file, options):
            size += len(block)
            if ends := block.count(separator):
                longest = max(longest, open_bytes + block.find(separator))
                open_bytes = len(block) - block.rfind(separator) - len(separator)
                records += ends
            else:
                open_bytes += len(block)
    longest = max(longest, open_bytes)
    return FileRecords(max(records + (open_bytes > 0), 1), size, longest if longest > _BLOCK_BYTES else 0)


def measure_records(file: PinnedFile, options: Mapping[str, str], whole: str = "") -> FileRecords:
    """FileRecords a text file by the options of its source.

    Args:
        whole: the option, in lower case, with which a file is one record.
    """
    option_values = {name.lower(): value for name, value in options.items()}
    records = measure_text(file, options, option_values.get("linesep", "\n").encode() or b"\n")
    return FileRecords(1, records.nbytes) if option_values.get(whole, "false").lower() == "true" else records


def unpack_file(file: PinnedFile, options: Mapping[str, str]) -> Iterator[bytes]:
    """Yield the bytes of a file in blocks, decompressed. Raises one of DAMAGED for a damaged file."""
    with open_file_bytes(file, options) as stream:
        yield from _UNPACKED.get(_suffix_of(file), _read_blocks)(stream)


def _suffix_of(file: PinnedFile) -> str:
    return file.path.rpartition("/")[2].rpartition(".")[2].lower()


def _read_blocks(file: BinaryIO) -> Iterator[bytes]:
    while block := file.read(_BLOCK_BYTES):
        yield block


def _inflate_members(file: BinaryIO, window: int = _GZIP) -> Iterator[bytes]:
    """Yield the bytes of all members of a file of gzip or zlib."""
    unpacked = zlib.decompressobj(wbits=window)
    while block := file.read(_BLOCK_BYTES):
        while block:
            yield unpacked.decompress(block, _BLOCK_BYTES)
            block = unpacked.unconsumed_tail
            if unpacked.eof:
                block, unpacked = unpacked.unused_data, zlib.decompressobj(wbits=window)


def _unpacked_by(codec: Callable[[], Any]) -> Callable[[BinaryIO], Iterator[bytes]]:
    def unpack_blocks(file: BinaryIO) -> Iterator[bytes]:
        unpacked = codec()
        while block := file.read(_BLOCK_BYTES):
            yield unpacked.decompress(block, _BLOCK_BYTES)
            while not unpacked.needs_input and not unpacked.eof:
                yield unpacked.decompress(b"", _BLOCK_BYTES)
            if unpacked.eof:
                return

    return unpack_blocks


def _unpack_zstd(file: BinaryIO) -> Iterator[bytes]:
    with pa.CompressedInputStream(pa.PythonFile(file, mode="r"), "zstd") as stream:
        while block := stream.read(_BLOCK_BYTES):
            yield block


#: The suffixes with which Hadoop decompresses a file. Files of snappy and lz4 count as they are stored.
_UNPACKED: Mapping[str, Callable[[BinaryIO], Iterator[bytes]]] = {
    "gz": _inflate_members,
    "deflate": lambda file: _inflate_members(file, _ZLIB),
    "bz2": _unpacked_by(bz2.BZ2Decompressor),
    "xz": _unpacked_by(lzma.LZMADecompressor),
    "zst": _unpack_zstd,
}


# --- ORC ----------------------------------------------------------------------------------------------------------


def measure_orc(file: PinnedFile, options: Mapping[str, str]) -> FileRecords:
    """FileRecords an ORC file. Cost: its footer; one read of its columns of variable width if it has some."""
    from pyarrow import dataset, orc

    with open_file_bytes(file, options) as stream:
        source = pa.PythonFile(stream, mode="r")
        footer = orc.ORCFile(source)
        wide = [f.name for f in footer.schema if _value_width(f.type) is None]
        nbytes, largest = footer.nrows * sum(_value_width(f.type) or 0 for f in footer.schema), 0
        if wide:
            scan = (
                dataset.OrcFileFormat()
                .make_fragment(source)
                .scanner(columns=wide, batch_size=_FEW_ROWS, batch_readahead=0, fragment_readahead=0, use_threads=False)
            )
            for batch in scan.to_batches():
                nbytes += batch.nbytes
                largest = max(largest, batch.nbytes // max(batch.num_rows, 1))
        return FileRecords(max(footer.nrows, 1), nbytes, largest)


def _value_width(kind: pa.DataType) -> int | None:
    """Return the bytes of each value of a type; None if they vary."""
    if pa.types.is_struct(kind):
        inner = [_value_width(field.type) for field in kind]
        return None if None in inner else sum(width or 0 for width in inner)
    try:
        return max(int(kind.bit_width) // 8, 1)
    except ValueError:
        return None


# --- Avro ---------------------------------------------------------------------------------------------------------

_SYNC_BYTES = 16


def measure_avro(file: PinnedFile, options: Mapping[str, str]) -> FileRecords:
    """FileRecords an Avro file. Cost: one read of it; each block is decompressed and counted."""
    records = nbytes = largest = 0
    with (
        open_file_bytes(file, options) as stream,
        suppress(OSError, EOFError, zlib.error, lzma.LZMAError, ValueError, IndexError),
    ):
        if stream.read(len(MAGIC)) != MAGIC:
            return FileRecords(1, file.size)
        codec = avro_metadata(stream).get(b"avro.codec", b"null").decode()
        stream.read(_SYNC_BYTES)
        while (count := avro_long(stream)) is not None:
            size = avro_long(stream) or 0
            block = _unpacked_size(codec, stream.read(size))
            stream.read(_SYNC_BYTES)
            records, nbytes = records + count, nbytes + block
            largest = max(largest, block // max(count, 1))
    return FileRecords(max(records, 1), nbytes, largest)


def _unpacked_size(codec: str, block: bytes) -> int:
    match codec:
        case "deflate":
            unpacked, size = zlib.decompressobj(wbits=_RAW), 0
            while block:
                size += len(unpacked.decompress(block, _BLOCK_BYTES))
                block = unpacked.unconsumed_tail
            return size
        case "snappy":  # begins with the number of its bytes, seven bits at a time
            size = shift = 0
            for byte in block:
                size |= (byte & 127) << shift
                if byte < 128:
                    return size
                shift += 7
            return size
        case "bzip2":
            return sum(map(len, _unpacked_by(bz2.BZ2Decompressor)(io.BytesIO(block))))
        case "xz":
            return sum(map(len, _unpacked_by(lzma.LZMADecompressor)(io.BytesIO(block))))
        case "zstandard":
            return sum(map(len, _unpack_zstd(io.BytesIO(block))))
    return len(block)


# --- Parquet ------------------------------------------------------------------------------------------------------

_SURELY_SMALL = 4 << 20  # the texts of a column chunk that have at most these bytes are estimated
_BATCH_BYTES = 32 << 20
_PLAIN = {"PLAIN", "RLE", "BIT_PACKED", "BIT-PACKED"}  # encodings with which texts are stored in full


def measure_parquet(file: PinnedFile, options: Mapping[str, str]) -> FileRecords:
    """FileRecords a Parquet file. Cost: its footer; one read of the columns whose texts share a dictionary."""
    meta = footer_of(file, options)
    with open_file_bytes(file, options) as stream:
        unknown, prefixed = set[str](), set[str]()
        nbytes, encoded = 0, 0
        for place in range(meta.num_columns):
            column = meta.schema.column(place)
            chunks = [meta.row_group(group).column(place) for group in range(meta.num_row_groups)]
            known = [_chunk_bytes(chunk, column.physical_type, column.length) for chunk in chunks]
            encoded += sum(chunk.total_uncompressed_size for chunk in chunks)
            if None in known:
                has_prefixes = any("DELTA_BYTE_ARRAY" in chunk.encodings for chunk in chunks)
                (prefixed if has_prefixes else unknown).add(column.path)
            else:
                nbytes += sum(known_bytes or 0 for known_bytes in known)
        largest = 0
        rows = min(1 << 16, _BATCH_BYTES * max(meta.num_rows, 1) // max(encoded, 1))
        for paths, batch, dictionaries in ((unknown, rows, sorted(unknown)), (prefixed, _FEW_ROWS, [])):
            if paths:
                more, most = _count_texts(stream, meta, paths, max(batch, 1), dictionaries)
                nbytes, largest = nbytes + more, max(largest, most)
        return FileRecords(max(meta.num_rows, 1), nbytes, largest)


def _chunk_bytes(chunk: Any, kind: str, length: int) -> int | None:
    """Return the decoded bytes of a column chunk; None if only a read shows them."""
    values = chunk.num_values
    if kind != "BYTE_ARRAY":
        return int(values * (length if kind == "FIXED_LEN_BYTE_ARRAY" else 8))
    if _PLAIN.issuperset(chunk.encodings):
        return int(chunk.total_uncompressed_size + 4 * values)
    if values * chunk.total_uncompressed_size > _SURELY_SMALL:
        return None
    statistics = chunk.statistics
    ends = (statistics.min_raw, statistics.max_raw) if statistics is not None and statistics.has_min_max else (b"", b"")
    texts = [len(end) if isinstance(end, bytes) else 0 for end in ends]
    return int(max(chunk.total_uncompressed_size, values * sum(texts) // 2) + 4 * values)


def _count_texts(
    file: BinaryIO, footer: pq.FileMetaData, paths: Collection[str], batch: int, dictionaries: Sequence[str]
) -> tuple[int, int]:
    """Return the decoded bytes of columns, and the bytes of their largest text.

    Args:
        batch: rows to read at once.
        dictionaries: columns that stay in dictionaries.
    """
    names = sorted({path.split(".")[0] for path in paths})
    nbytes = largest = 0
    parquet_file = pq.ParquetFile(pa.PythonFile(file, mode="r"), metadata=footer, read_dictionary=dictionaries)
    for part in parquet_file.iter_batches(batch_size=batch, columns=names, use_threads=False):
        for column in part.columns:
            more, most = _decoded_bytes(column)
            nbytes, largest = nbytes + more, max(largest, most)
    return nbytes, largest


def _decoded_bytes(array: pa.Array) -> tuple[int, int]:
    """Return the bytes of an array without dictionaries, and the bytes of its largest text."""
    kind = array.type
    if pa.types.is_dictionary(kind):
        lengths = pc.binary_length(array.dictionary)
        text_bytes = pc.sum(lengths.take(array.indices)).as_py() or 0
        return text_bytes + 4 * len(array), pc.max(lengths).as_py() or 0
    if pa.types.is_struct(kind):
        inner = [_decoded_bytes(part) for part in array.flatten()]
    elif pa.types.is_map(kind):
        inner = [_decoded_bytes(array.keys), _decoded_bytes(array.items)]
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        inner = [_decoded_bytes(array.flatten())]
    else:
        is_text = pa.types.is_string(kind) or pa.types.is_binary(kind)
        return array.nbytes, (pc.max(pc.binary_length(array)).as_py() or 0) if is_text else 0
    return sum(size for size, _ in inner), max((most for _, most in inner), default=0)
