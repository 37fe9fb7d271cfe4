"""Equal bytes are found under the ETag of another upload. The expected ETags are computed from the whole content."""

import random
from hashlib import md5
from pathlib import Path

import pytest

from tussock.jobs.sources.etags import has_content_of
from tussock.statestore.objectstore.local import LocalObjectStore

MIB = 1 << 20
CONTENT = random.Random(1).randbytes(11 * MIB + 7)
WHOLE = md5(CONTENT).hexdigest()


def in_parts(part: int) -> str:
    digests = [md5(CONTENT[start : start + part]).digest() for start in range(0, len(CONTENT), part)]
    return f"{md5(b''.join(digests)).hexdigest()}-{len(digests)}"


@pytest.mark.parametrize(
    ("now", "recorded", "same"),
    [
        (in_parts(5 * MIB), WHOLE, True),
        (WHOLE, in_parts(5 * MIB), True),
        (in_parts(8 * MIB), in_parts(5 * MIB), True),
        (WHOLE, in_parts(64 * MIB), True),
        (WHOLE, in_parts(7 * MIB), False),  # no tool is known for this size of parts
        (in_parts(5 * MIB), "0" * 32, False),
        (WHOLE, "0" * 32, False),
        ("of another server", WHOLE, False),
    ],
)
def test_equal_bytes_have_the_etag_of_another_upload(tmp_path: Path, now: str, recorded: str, same: bool) -> None:
    (tmp_path / "a").write_bytes(CONTENT)
    assert has_content_of(LocalObjectStore(tmp_path), "a", len(CONTENT), now, recorded) is same
