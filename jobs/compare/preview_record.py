"""The last previews of a store: what a change of its files did on a branch. Stored as one object of the parent."""

from typing import Any

import msgspec
import pyarrow as pa

from tussock.jobs.compare.record import StoreDifference
from tussock.statestore.decoding import convert_value, decode_json
from tussock.statestore.objectstore.base import ObjectNotFoundError, ObjectStore

LAST = "previews/last.json"
KEPT = 10  # previews


class PreviewCheck(msgspec.Struct, frozen=True):
    """One check of a preview, with its lines. They contain values of rows only if readers of the DAG may see them."""

    name: str
    passed: bool
    lines: tuple[str, ...] = ()


class Preview(msgspec.Struct, frozen=True):
    """The result of one preview."""

    branch: str
    files: str  # a commit or a folder; empty: the deployed files
    run: str  # of Airflow
    ended_ms: int
    followed: int  # epochs of the parent after the branch began
    difference: StoreDifference  # values of sample rows are texts
    checks: tuple[PreviewCheck, ...]

    @property
    def failed(self) -> tuple[str, ...]:
        """The checks that failed."""
        return tuple(check.name for check in self.checks if not check.passed)


def read_previews(objects: ObjectStore) -> tuple[Preview, ...]:
    """Return the last previews of a store, the newest first. Cost: one GET."""
    try:
        document = decode_json(objects.get(LAST), list[Any])
    except ObjectNotFoundError:
        return ()
    return tuple(convert_value(value, Preview, _decode_table) for value in document)


def add_preview(objects: ObjectStore, preview: Preview) -> None:
    """Store a preview as the newest one. A repetition for the same branch and run replaces it.

    Requires: the sample rows are texts. Cost: a GET and a PUT.
    """
    others = [p for p in read_previews(objects) if (p.branch, p.run) != (preview.branch, preview.run)]
    objects.put(LAST, msgspec.json.encode([preview, *others[: KEPT - 1]], enc_hook=_encode_table))


def _encode_table(value: object) -> object:
    assert isinstance(value, pa.Table)
    return value.to_pydict()


def _decode_table(kind: type, value: Any) -> Any:
    if kind is not pa.Table:
        raise NotImplementedError
    return pa.table({name: pa.array(cells, pa.string()) for name, cells in value.items()})
