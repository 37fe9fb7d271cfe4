"""Whether an object in S3 has the bytes of an ETag that another upload gave it.

The ETag of an upload in one request is the MD5 of the bytes. That of an upload in parts is the MD5 of the parts' MD5s,
and the number of parts (`…-3`). So equal bytes have different ETags if tools upload them in different ways. The size of
the parts is unknown, but tools use few sizes.
"""

import re
from collections.abc import Iterator
from hashlib import md5

from tussock.statestore.objectstore.base import ObjectStore

_ETAG = re.compile(r"^([0-9a-f]{32})(?:-(\d+))?$")
_MIB = 1 << 20
_PART_MIB = (5, 6, 8, 10, 15, 16, 20, 25, 32, 50, 64, 100, 128, 256, 512, 1024)  # of the common tools
_BLOCK_BYTES = _MIB  # divides each size of parts
_BLOCKS_PER_GET = 16


def has_content_of(store: ObjectStore, name: str, size: int, now: str, etag: str) -> bool:
    """Return whether an object of this size and present ETag has the bytes that another ETag describes.

    False if this cannot be decided: one of the ETags has another form, or an unknown size of parts.

    Cost: one read of the object if one of the ETags belongs to an upload in parts of a usual size; otherwise nothing.
    """
    wanted, shown = _ETAG.match(etag), _ETAG.match(now)
    if wanted is None or shown is None or (wanted[2] is None and shown[2] is None):
        return False
    parts = None if wanted[2] is None else int(wanted[2])
    sizes = [size] if parts in (None, 1) else [p * _MIB for p in _PART_MIB if -(-size // (p * _MIB)) == parts]
    return bool(sizes) and etag in _possible_etags(store, name, size, sizes, in_parts=parts is not None)


def _read_blocks(store: ObjectStore, name: str, size: int) -> Iterator[tuple[int, bytes]]:
    """The bytes of an object in blocks, with their offsets. Cost: one GET per 16 MiB."""
    ranges = [(start, min(_BLOCK_BYTES, size - start)) for start in range(0, size, _BLOCK_BYTES)]
    for first in range(0, len(ranges), _BLOCKS_PER_GET):
        some = ranges[first : first + _BLOCKS_PER_GET]
        for (start, _), block in zip(some, store.get_ranges(name, some), strict=True):
            yield start, block


def _possible_etags(store: ObjectStore, name: str, size: int, part_sizes: list[int], *, in_parts: bool) -> set[str]:
    """The ETags that uploads of an object in parts of these sizes would have."""
    open_parts = [md5(usedforsecurity=False) for _ in part_sizes]
    closed: list[list[bytes]] = [[] for _ in part_sizes]
    for start, block in _read_blocks(store, name, size):
        for i, part_size in enumerate(part_sizes):
            if start and start % part_size == 0:
                closed[i].append(open_parts[i].digest())
                open_parts[i] = md5(usedforsecurity=False)
            open_parts[i].update(block)
    if not in_parts:
        return {part.hexdigest() for part in open_parts}
    whole = [[*digests, last.digest()] for digests, last in zip(closed, open_parts, strict=True)]
    return {f"{md5(b''.join(parts), usedforsecurity=False).hexdigest()}-{len(parts)}" for parts in whole}
