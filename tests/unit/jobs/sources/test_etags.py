"""Equal bytes are found under the ETag of another upload. The expected ETags are computed from the whole content."""

import random
from hashlib import md5
from pathlib import Path

import msgspec
import pytest

from tussock.jobs.logical.statements import CreateSource
from tussock.jobs.sources import files
from tussock.jobs.sources.etags import has_content_of
from tussock.jobs.sources.pins import PinnedFile
from tussock.jobs.sources.taken import ChangedFile
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


def test_an_object_is_not_read_if_no_size_of_parts_gives_the_number_of_parts(tmp_path: Path) -> None:
    assert not has_content_of(LocalObjectStore(tmp_path), "no such object", len(CONTENT), WHOLE, f"{WHOLE}-7")


def test_an_upload_is_compared_once_per_process_and_not_if_changes_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    read = list[str]()

    def has_content_of(_store: object, _name: str, _size: int, now: str, _etag: str) -> bool:
        read.append(now)
        return now == "same"

    monkeypatch.setattr(files, "has_content_of", has_content_of)
    files._is_same_upload.cache_clear()
    was = PinnedFile("s3://b/in/a.csv", 5, "was", 0)
    changes = [ChangedFile(was, msgspec.structs.replace(was, etag=etag)) for etag in ("same", "other")]
    options = {"path": "s3://b/in?endpoint=http://nowhere&region=r"}
    for _ in range(2):
        same, other = files._with_same_bytes(CreateSource("s", "csv", (), options), changes)
        assert ([c.now.etag for c in same], [c.now.etag for c in other]) == (["same"], ["other"])
    assert read == ["same", "other"]
    ignoring = CreateSource("s", "csv", (), {**options, "endpoint": "http://elsewhere", "on_change": "ignore"})
    assert files._with_same_bytes(ignoring, changes) == ([], changes)
    assert read == ["same", "other"]
    files._is_same_upload.cache_clear()
