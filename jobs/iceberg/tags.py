"""Tags of several tables: by one commit if the catalog is a REST server with multi-table commits, else table by table.

pyiceberg 0.12 has no client of multi-table commits; the request is a list of commits of single tables.
"""

from collections.abc import Mapping
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from pyiceberg.table import CommitTableRequest, Table, TableIdentifier
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.update import AssertRefSnapshotId, SetSnapshotRefUpdate
from pyiceberg.table.update.snapshot import ManageSnapshots

from tussock.jobs.iceberg.row_delta import KnownTransaction

_TRANSACTIONS = "transactions/commit"


def set_tags(catalog: Catalog, tag: str, tables: Mapping[int, Table]) -> None:
    """Set a tag in each table that lacks it.

    Args:
        tables: by the id of the snapshot to tag.

    Raises: CommitFailedException, and the other errors of pyiceberg. Cost: one request, or one commit per table.
    """
    open_ones = {snapshot: table for snapshot, table in tables.items() if _tagged_snapshot(table, tag) != snapshot}
    if len(open_ones) > 1 and _commits_together(catalog):
        _commit_together(catalog, [_request_of(table, tag, snapshot) for snapshot, table in open_ones.items()])
        return
    for snapshot, table in open_ones.items():
        ManageSnapshots(KnownTransaction(table, autocommit=True)).create_tag(snapshot, tag).commit()


def _tagged_snapshot(table: Table, tag: str) -> int | None:
    ref = table.metadata.refs.get(tag)
    return None if ref is None else ref.snapshot_id


def _commits_together(catalog: Any) -> bool:
    return any(endpoint.path.endswith(f"/{_TRANSACTIONS}") for endpoint in getattr(catalog, "_supported_endpoints", ()))


def _request_of(table: Table, tag: str, snapshot: int) -> CommitTableRequest:
    *namespace, name = table.name()
    before = AssertRefSnapshotId.model_validate({"ref": tag, "snapshot-id": _tagged_snapshot(table, tag)})
    update = SetSnapshotRefUpdate.model_validate(
        {"ref-name": tag, "snapshot-id": snapshot, "type": SnapshotRefType.TAG}
    )
    identifier = TableIdentifier.model_validate({"namespace": namespace, "name": name})
    return CommitTableRequest(identifier=identifier, requirements=(before,), updates=(update,))


def _commit_together(catalog: Any, requests: list[CommitTableRequest]) -> None:
    from pyiceberg.catalog.rest import HTTPError  # type: ignore[attr-defined]
    from pyiceberg.catalog.rest.response import _handle_non_200_response

    body = f'{{"table-changes":[{",".join(request.model_dump_json() for request in requests)}]}}'
    response = catalog._session.post(catalog.url(_TRANSACTIONS), data=body.encode())
    try:
        response.raise_for_status()
    except HTTPError as err:
        unknown = dict.fromkeys((500, 502, 504), CommitStateUnknownException)
        _handle_non_200_response(err, {409: CommitFailedException, **unknown})
