"""Virtual nodes: assign each row of a table to one of V equal shares.

    vnode = xxhash64(distribution columns) mod V        V is a power of two, at most 32768

The hash is bit-identical to Spark's `xxhash64()` on normalised values, so Spark and this process route rows alike.
Columns are hashed in order: each hash is the seed of the next column, and the first seed is 42. NULL leaves the hash
unchanged. The hashed bytes, little-endian:

    boolean (0 or 1), tinyint, smallint, int, date      4 bytes, sign extended
    bigint, timestamp, timestamp_ntz                    8 bytes
    float, double                                       the 4 or 8 bytes of the bit pattern
    decimal(p<=18)                                      8 bytes: the unscaled value
    decimal(p>18)                                       the shortest two's complement of the unscaled value, big-endian
    string, binary                                      the bytes of the value
    array, struct, map                                  each element, each field, or each key and value in turn

xxHash64 (specification: https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md) is computed with NumPy over
whole columns. This needs neither a Spark session nor threads, survives a fork, and takes microseconds for ten rows.
Strings of LONG_BYTES or more are hashed one by one with the `xxhash` package, because the NumPy code makes one pass per
32 bytes of the longest string, however few rows are that long.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from tussock.statestore.errors import InputError
from tussock.statestore.nested import as_list, holds_floats, is_nested, rebuild_leaves
from tussock.statestore.types import MONTHS, UnsupportedTypeError, is_span

MAX_VNODE_COUNT = 32768
SPARK_SEED = 42
#: Strings of this length or more are hashed one by one. Measured: one call of the package takes 0.3 us; in NumPy passes
#: over 20,000 strings of 256 bytes each row takes 0.6 us, and far more if there are few rows. Calls are therefore
#: cheaper for any number of long strings, and a string of 10 MB does not cause 300,000 passes.
LONG_BYTES = 256

U64 = npt.NDArray[np.uint64]

_P1 = np.uint64(0x9E3779B185EBCA87)
_P2 = np.uint64(0xC2B2AE3D27D4EB4F)
_P3 = np.uint64(0x165667B19E3779F9)
_P4 = np.uint64(0x85EBCA77C2B2AE63)
_P5 = np.uint64(0x27D4EB2F165667C5)
_P5_4, _P5_8 = np.uint64(0x27D4EB2F165667C9), np.uint64(0x27D4EB2F165667CD)  # _P5 plus the input length, 4 or 8 bytes
_HASHED = 32768  # rows per batch: about a dozen passes over them stay in the CPU cache, which takes a third of the time
_UNSCALED = np.dtype([("low", "<u8"), ("high", "<i8")])  # a decimal128 in memory


class VnodeCountError(InputError):
    """A vnode count is not a power of two from 1 to 32768."""

    count: int

    def __str__(self) -> str:
        return (
            f"vnode count {self.count}: must be a power of two from 1 to {MAX_VNODE_COUNT}; "
            "it cannot change after the store is created"
        )


def vnodes_of(columns: Sequence[pa.Array], vnode_count: int, rows: int | None = None) -> npt.NDArray[np.uint16]:
    """Compute the vnode of every row.

    Args:
        columns: the distribution columns in hash order, arrays (or chunked arrays) of one length; need not be
            normalised.
        vnode_count: V, a power of two up to 32768.
        rows: the number of rows; required only if `columns` is empty (a singleton: every row is in vnode 0).

    Returns: (rows,) uint16.
    Raises: VnodeCountError; UnsupportedTypeError if a column's type has no hash.
    Cost: about 15 ns per number, 100 ns per short string.
    """
    if not 1 <= vnode_count <= MAX_VNODE_COUNT or vnode_count & (vnode_count - 1):
        raise VnodeCountError(vnode_count)
    if not columns:
        if rows is None:
            raise ValueError("vnodes_of: `rows` is required if `columns` is empty")
        return np.zeros(rows, np.uint16)
    # For a power of two, pmod of the signed hash equals its low bits.
    return (xxhash64(columns) & np.uint64(vnode_count - 1)).astype(np.uint16)


def xxhash64(columns: Sequence[pa.Array]) -> U64:
    """Spark's `xxhash64(columns...)` of every row as uint64. Floats are normalised first.

    Requires: at least one column. Raises UnsupportedTypeError.
    """
    arrays = [one_array(column) for column in columns]
    hashes = np.full(len(arrays[0]), SPARK_SEED, np.uint64)
    for first in range(0, len(hashes), _HASHED):
        piece = slice(first, first + _HASHED)
        for array in arrays:
            hashes[piece] = _hash_onto(array[piece], hashes[piece])
    return hashes


def normalise_floats(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Normalise floats for use in keys: -0.0 becomes 0.0, and all NaNs become the same NaN.

    Floats in arrays, structs and the values of maps are included. Floats in the keys of maps are unchanged, because
    Spark distinguishes them by their bits. A column of another type is returned unchanged.
    """
    array = one_array(column)
    return (
        rebuild_leaves(array, array.type, _normalised_leaf, lambda key, _: key) if holds_floats(array.type) else array
    )


def _normalised_leaf(array: pa.Array, kind: pa.DataType) -> pa.Array:
    if not pa.types.is_floating(kind):
        return array
    values = normalised_floats(array)
    nulls = pa.py_buffer(np.packbits(~null_mask(array), bitorder="little")) if array.null_count else None
    return pa.Array.from_buffers(array.type, len(array), [nulls, pa.py_buffer(values)])


def one_array(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return the column as one contiguous array. Copies only if it has several chunks."""
    if isinstance(column, pa.ChunkedArray):
        return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    return column


def null_mask(array: pa.Array) -> npt.NDArray[np.bool_]:
    """(n,) True for NULL."""
    return np.asarray(array.is_null().to_numpy(zero_copy_only=False), np.bool_)


def fixed_values(array: pa.Array, dtype: npt.DTypeLike) -> npt.NDArray[np.generic]:
    """The array's value buffer as a NumPy view; values under NULLs are arbitrary.

    Requires: a fixed-width type that is not boolean, and a `dtype` of the same width.
    """
    if len(array) == 0:  # An empty array may have no buffer.
        return np.empty(0, dtype)
    return np.frombuffer(array.buffers()[1], dtype)[array.offset : array.offset + len(array)]


def normalised_floats(array: pa.Array) -> npt.NDArray[np.floating]:
    """(n,) float32 or float64, with a single zero and a single NaN."""
    kind = np.float32 if pa.types.is_float32(array.type) else np.float64
    values: npt.NDArray[np.floating] = fixed_values(array, kind) + kind(0)  # type: ignore[operator]  # -0.0 + 0.0 = 0.0
    values[np.isnan(values)] = np.nan  # the same bits as Java's NaN: sign clear, only the highest mantissa bit set
    return values


def unscaled_decimals(array: pa.Array) -> npt.NDArray[np.void]:
    """(n,) of (low u64, high i64): the unscaled 128-bit values of a decimal128 array."""
    return fixed_values(array, _UNSCALED)  # type: ignore[return-value]


def byte_spans(array: pa.Array) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """(bytes, offsets, lengths) of a string or binary array. Value i is bytes[offsets[i] : offsets[i] + lengths[i]].

    The length of a NULL is 0.
    """
    buffers = array.buffers()
    if len(array) == 0 or buffers[1] is None:
        empty = np.zeros(len(array), np.int64)
        return np.empty(0, np.uint8), empty, empty
    offset_type = np.int64 if pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type) else np.int32
    ends = np.frombuffer(buffers[1], offset_type)[array.offset : array.offset + len(array) + 1].astype(np.int64)
    lengths = np.diff(ends)
    if array.null_count:
        lengths[null_mask(array)] = 0  # Arrow permits bytes under NULLs.
    # Return only this slice's bytes, so that the caller's work is proportional to the slice and not to the buffer.
    data = np.empty(0, np.uint8) if buffers[2] is None else np.frombuffer(buffers[2], np.uint8)[ends[0] : ends[-1]]
    return data, ends[:-1] - ends[0], lengths


def _hash_onto(array: pa.Array, seeds: U64) -> U64:
    """Hash a column with `seeds`. The seed remains for rows that are NULL."""
    hashed = _hash_nested(array, seeds) if is_nested(array.type) else _hash_column(array, seeds)
    return np.where(null_mask(array), seeds, hashed) if array.null_count else hashed


def _hash_nested(array: pa.Array, seeds: U64) -> U64:
    """Hash structs field by field, and lists element by element.

    Lists need one pass per element position of the longest list, each over the lists that are long enough.
    """
    if pa.types.is_struct(array.type):
        for field in array.flatten():  # NULL if the struct is NULL
            seeds = _hash_onto(field, seeds)
        return seeds
    lists = as_list(array)
    counts = pc.fill_null(pc.list_value_length(lists), 0).to_numpy().astype(np.int64)
    elements, starts = lists.flatten(), np.cumsum(counts) - counts
    order = np.argsort(-counts, kind="stable")  # longest first: unfinished lists are always a prefix
    running = np.searchsorted(-counts[order], -np.arange(counts.max(initial=0)), side="left")
    hashes = seeds[order]
    for place, count in enumerate(running):
        hashes[:count] = _hash_onto(elements.take(pa.array(starts[order[:count]] + place)), hashes[:count])
    unsorted = np.empty_like(hashes)
    unsorted[order] = hashes
    return unsorted


def _hash_column(array: pa.Array, seeds: U64) -> U64:
    kind = array.type
    if pa.types.is_boolean(kind):
        return _hash_u32(one_array(pc.cast(array, pa.uint8())).fill_null(0).to_numpy().astype(np.uint64), seeds)
    if pa.types.is_int8(kind) or pa.types.is_int16(kind) or pa.types.is_int32(kind) or pa.types.is_date32(kind):
        signed = fixed_values(array, np.dtype(f"i{kind.bit_width // 8}")).astype(np.int32)
        return _hash_u32(signed.view(np.uint32).astype(np.uint64), seeds)
    if kind == MONTHS:  # Spark's representation has 32 bits.
        return _hash_u32(fixed_values(array, np.int64).astype(np.int32).view(np.uint32).astype(np.uint64), seeds)
    if pa.types.is_int64(kind) or pa.types.is_timestamp(kind) or is_span(kind):
        return _hash_u64(fixed_values(array, np.uint64), seeds)  # type: ignore[arg-type]
    if pa.types.is_float32(kind):
        return _hash_u32(normalised_floats(array).view(np.uint32).astype(np.uint64), seeds)
    if pa.types.is_float64(kind):
        return _hash_u64(normalised_floats(array).view(np.uint64), seeds)
    if pa.types.is_decimal128(kind):
        unscaled = unscaled_decimals(array)
        return (
            _hash_u64(unscaled["low"], seeds)
            if kind.precision <= 18
            else _hash_bytes(*_shortest_big_endian(unscaled), seeds)
        )
    if (
        pa.types.is_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_large_binary(kind)
    ):
        return _hash_bytes(*byte_spans(array), seeds)
    raise UnsupportedTypeError(str(kind))


def _shortest_big_endian(
    unscaled: npt.NDArray[np.void],
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Byte spans of Java's `BigInteger.toByteArray()`: as few bytes as value and sign bit need, at least one."""
    n = len(unscaled)
    wide = np.empty(n, np.dtype([("high", ">i8"), ("low", ">u8")]))
    wide["high"], wide["low"] = unscaled["high"], unscaled["low"]
    bytes_ = wide.view(np.uint8).reshape(n, 16)
    # Leading zero bytes of the magnitude are redundant: the sign implies them.
    magnitude = np.where((unscaled["high"] < 0)[:, None], ~bytes_, bytes_)
    first = np.where(magnitude.any(axis=1), (magnitude != 0).argmax(axis=1), 15)
    # Add a byte if the first significant one already uses the sign bit.
    first -= np.take_along_axis(magnitude, first[:, None], axis=1)[:, 0] >> 7
    return bytes_.reshape(-1), np.arange(n, dtype=np.int64) * 16 + first, 16 - first


def _rotate_left(x: U64, bits: int) -> U64:
    return (x << np.uint64(bits)) | (x >> np.uint64(64 - bits))


def _avalanche(h: U64) -> U64:
    h = (h ^ (h >> np.uint64(33))) * _P2
    h = (h ^ (h >> np.uint64(29))) * _P3
    return h ^ (h >> np.uint64(32))


def _mix_u64(h: U64, word: U64) -> U64:
    return _rotate_left(h ^ (_rotate_left(word * _P2, 31) * _P1), 27) * _P1 + _P4


def _mix_u32(h: U64, word: U64) -> U64:
    return _rotate_left(h ^ (word * _P1), 23) * _P2 + _P3


def _hash_u64(words: U64, seeds: U64) -> U64:
    return _avalanche(_mix_u64(seeds + _P5_8, words))


def _hash_u32(words: U64, seeds: U64) -> U64:
    return _avalanche(_mix_u32(seeds + _P5_4, words))


def _hash_bytes(
    data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64], seeds: U64
) -> U64:
    """xxHash64 of every span."""
    long = np.flatnonzero(lengths >= LONG_BYTES)
    if not len(long):
        return _hash_short(data, offsets, lengths, seeds)
    spans = zip(offsets[long].tolist(), lengths[long].tolist(), seeds[long].tolist(), strict=True)
    view = data.data
    one_by_one = np.array([xxhash.xxh64_intdigest(view[at : at + size], seed) for at, size, seed in spans], np.uint64)
    short = np.flatnonzero(lengths < LONG_BYTES)
    hashes = np.empty(len(lengths), np.uint64)
    hashes[long], hashes[short] = one_by_one, _hash_short(data, offsets[short], lengths[short], seeds[short])
    return hashes


def _hash_short(
    data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64], seeds: U64
) -> U64:
    """xxHash64 of every span shorter than LONG_BYTES.

    Makes one pass per 32-byte stripe of the longest span, each over the spans that are long enough.
    """
    padded = np.concatenate([data, np.zeros(8, np.uint8)])  # allows reading a word at any offset
    words64: U64 = np.ndarray((len(data) + 1,), np.dtype("<u8"), padded, strides=(1,))
    words32: npt.NDArray[np.uint32] = np.ndarray((len(data) + 5,), np.dtype("<u4"), padded, strides=(1,))

    hashes = seeds + _P5
    at = offsets.copy()
    long = np.flatnonzero(lengths >= 32)
    if len(long):
        hashes[long] = _hash_stripes(words64, offsets[long], lengths[long] // 32, seeds[long])
        at[long] += lengths[long] // 32 * 32
    hashes += lengths.astype(np.uint64)
    rest = lengths % 32
    for word in range(3):
        some = np.flatnonzero(rest >= 8 * (word + 1))
        hashes[some] = _mix_u64(hashes[some], words64[at[some]])
        at[some] += 8
    some = np.flatnonzero(rest % 8 >= 4)
    hashes[some] = _mix_u32(hashes[some], words32[at[some]].astype(np.uint64))
    at[some] += 4
    for byte in range(3):
        some = np.flatnonzero(rest % 4 > byte)
        hashes[some] = _rotate_left(hashes[some] ^ (padded[at[some] + byte].astype(np.uint64) * _P5), 11) * _P1
    return _avalanche(hashes)


def _hash_stripes(words64: U64, offsets: npt.NDArray[np.int64], stripes: npt.NDArray[np.int64], seeds: U64) -> U64:
    """The state after all whole 32-byte stripes. Requires: each span has at least one."""
    order = np.argsort(-stripes, kind="stable")  # longest first: unfinished spans are always a prefix
    running = np.searchsorted(-stripes[order], -np.arange(stripes.max()), side="left")
    at, seeds = offsets[order], seeds[order]
    lanes = [seeds + _P1 + _P2, seeds + _P2, seeds.copy(), seeds - _P1]
    for stripe, count in enumerate(running):
        for lane in range(4):
            word = words64[at[:count] + (32 * stripe + 8 * lane)]
            lanes[lane][:count] = _rotate_left(lanes[lane][:count] + word * _P2, 31) * _P1
    hashes = (
        _rotate_left(lanes[0], 1) + _rotate_left(lanes[1], 7) + _rotate_left(lanes[2], 12) + _rotate_left(lanes[3], 18)
    )
    for lane in range(4):
        hashes = (hashes ^ (_rotate_left(lanes[lane] * _P2, 31) * _P1)) * _P1 + _P4
    unsorted = np.empty_like(hashes)
    unsorted[order] = hashes
    return unsorted
