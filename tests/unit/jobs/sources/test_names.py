"""Names of folders and files with any characters always reach their own bytes, never another file's."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from urllib.parse import parse_qsl

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.names import QUICK, TWINS, names
from tussock.jobs.delta.delta_log import DeltaPlace
from tussock.jobs.sources.listing import list_files, open_file, split_bucket

RECURSIVE = {"recursiveFileLookup": "true"}


@given(st.lists(st.tuples(names(), names()), min_size=1, max_size=5, unique=True))
@QUICK
def test_each_listed_file_opens_as_itself(found: list[tuple[str, str]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        wanted = {}
        for n, (directory, leaf) in enumerate(found):
            file = Path(folder, directory, leaf)
            if not any(part.is_file() for part in file.parents) and not file.is_dir():
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(bytes([n]))
                wanted[str(file)] = bytes([n])
        listed = list_files(folder, RECURSIVE)
        assert {f.path: bytes_of(f.path, {}) for f in listed} == wanted


@given(names(without="*?[]{}\\"))
@QUICK
def test_a_folder_is_listed_by_its_own_name(name: str) -> None:
    """Other folders have names that a parser might produce from it."""
    with tempfile.TemporaryDirectory() as folder:
        for twin in {name, *TWINS, name.replace("%", "%25"), name.partition("#")[0] or "none"}:
            Path(folder, twin).mkdir()
            Path(folder, twin, "file").write_text(twin)
        (only,) = list_files(f"{folder}/{name}", {})
        assert bytes_of(only.path, {}).decode() == name


def test_keys_in_a_bucket_are_listed_and_opened_as_they_are(
    s3_bucket: tuple[str, Callable[[str, bytes], None]],
) -> None:
    """Each folder next to its twins. The server's address is in the source's options, or in the query of its path."""
    address, put = s3_bucket
    bucket, _, query = address.partition("?")
    drawn: list[str] = []

    @given(names(without="\\\n"))
    @settings(QUICK, derandomize=True, database=None)
    def draw(name: str) -> None:
        drawn.append(name)

    draw()
    folders = sorted({*TWINS, *drawn})
    for folder in folders:
        put(f"names/{folder}/file {folder}", folder.encode())
    for options, path in ((dict(parse_qsl(query)), f"{bucket}/names"), ({}, f"{bucket}/names?{query}")):
        given_ = {**options, "path": path, **RECURSIVE}
        listed = list_files(path, given_)
        assert {f.path: bytes_of(f.path, given_) for f in listed} == {
            f"{bucket}/names/{f}/file {f}": f.encode() for f in folders
        }
        for folder in TWINS:
            path = f"{bucket}/names/{folder}{'' if options else f'?{query}'}"
            (only,) = list_files(path, {**options, "path": path})
            assert bytes_of(only.path, {**options, "path": path}).decode() == folder


@given(names(without="\\\t\n"))
@QUICK
def test_a_delta_folder_keeps_its_name(name: str) -> None:
    for root in ("/lake", "s3://bucket/lake"):
        bucket, path = split_bucket(f"{root}/{name}/t")
        place = DeltaPlace(bucket, path, {})
        if root[0] == "/" or ("?" not in name and "[" not in name):
            assert place.root == f"{root}/{name}/t"
            assert place.file_path("p=a%20b/x.parquet") == f"{root}/{name}/t/p=a%20b/x.parquet"


def bytes_of(path: str, options: dict[str, str]) -> bytes:
    store, name = open_file(path, options)
    return store.get(name)
