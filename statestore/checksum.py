"""crc32c (RFC 3720), the checksum of SSTs and documents."""

import google_crc32c
import pyarrow as pa


def crc32c(data: bytes | memoryview | pa.Buffer) -> int:
    """Return the crc32c of `data`. Cost: 5 to 9 GB/s; 64 KiB take 7 us."""
    # google_crc32c accepts no memoryview.
    return int(google_crc32c.value(pa.py_buffer(data) if isinstance(data, memoryview) else data))
