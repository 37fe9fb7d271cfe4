"""The bytes of every stored document, as files.

`golden/` holds them. `--update-cases` writes them again; a change there changes the storage format, so it needs a note
in docs/design/, and from release 0.1.0 on the earlier bytes must still decode to the value of the new ones.
"""

from pathlib import Path
from typing import get_args

import msgspec
import pytest

from tests.support.upgrade.documents import DEFINITIONS, DOCUMENTS, STATEMENTS
from tussock.jobs.catalog.definition import Definition
from tussock.jobs.executors.registry import Node
from tussock.jobs.logical.nodes import Expr, Plan
from tussock.jobs.logical.statements import Statement
from tussock.statestore.meta.delta import VersionChange
from tussock.statestore.meta.document import decode_document, encode_document

GOLDEN = Path(__file__).parent / "golden"
#: Relative path -> value.
VALUES: dict[str, msgspec.Struct] = {
    **{f"meta/{name}.json": value for name, value in DOCUMENTS.items()},
    **{f"statements/{name}.json": value for name, value in STATEMENTS.items()},
    **{f"definitions/{name}.json": value for name, value in DEFINITIONS.items()},
}


def encoded(path: str) -> bytes:
    """The stored bytes: documents of meta with their checksum, and statements and definitions without one."""
    return encode_document(VALUES[path]) if path.startswith("meta/") else msgspec.json.encode(VALUES[path])


def decoded(path: str, data: bytes) -> object:
    """The value that is read."""
    if path.startswith("meta/"):
        return decode_document(path, data, type(VALUES[path]))
    return msgspec.json.decode(data, type=Statement if path.startswith("statements/") else Definition)


@pytest.mark.parametrize("path", VALUES)
def test_a_stored_document_is_the_golden_one_and_reads_back(path: str, request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--update-cases"):
        (GOLDEN / path).parent.mkdir(parents=True, exist_ok=True)
        (GOLDEN / path).write_bytes(encoded(path))
    data = (GOLDEN / path).read_bytes()
    assert encoded(path).decode() == data.decode(), (
        "a stored form changed: note it in docs/design/, keep reading the old, --update-cases"
    )
    assert decoded(path, data) == VALUES[path]


def test_every_class_that_is_stored_by_its_name_has_a_golden_file() -> None:
    stored = "".join(encoded(path).decode() for path in VALUES)
    for union in (Statement, Definition, Node, Plan, VersionChange, Expr):
        for kind in get_args(union):
            config = kind.__struct_config__
            assert f'"{config.tag_field}":"{config.tag}"' in stored, kind
