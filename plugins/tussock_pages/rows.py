"""The rows of a view or table that readers see, with a search by value, and the changes of one epoch."""

from collections.abc import Mapping
from typing import Annotated

import pyarrow as pa
from airflow.api_fastapi.common.db.common import SessionDep
from fastapi import APIRouter, HTTPException, Query, Request
from fastapi.responses import Response

from tussock.jobs.catalog.store_zone import store_zone
from tussock.jobs.facts.rows import MOST_ROWS, SEARCH_S, RowsFacts, first_changes, first_rows, search_columns
from tussock.jobs.reading.reader import CHANGE
from tussock.jobs.texts.table import cell_texts
from tussock.statestore.errors import InputError
from tussock.statestore.meta.catalog import Relation
from tussock.statestore.meta.version import HummockVersion
from tussock_pages.dag import WITH_ROWS, head_of, store_of
from tussock_pages.guard import READS_RUNS, User, require_rows
from tussock_pages.page import page
from tussock_pages.stores import SeenStore

COLUMN = "c."
"""The prefix of query parameters that name a column, so that no column takes the place of another parameter."""

router = APIRouter(dependencies=[READS_RUNS])


@router.get("/dags/{dag_id}/relations/{name}/rows")
def rows_page(
    request: Request,
    user: User,
    session: SessionDep,
    dag_id: str,
    name: str,
    changed: Annotated[str, Query(alias="epoch", pattern=r"^[0-9]{0,20}$")] = "",
) -> Response:
    """Show at most MOST_ROWS rows, or changes of an epoch, that have the values of the parameters `c.<column>`."""
    epoch = int(changed) if changed else None
    store = store_of(dag_id)
    require_rows(user, dag_id, store.pipeline, "rows")
    relation = _find_relation(store.version, name)
    if relation is None:
        raise HTTPException(404, f"The pipeline has no table or materialized view {name!r}.")
    wanted_values = {
        key.removeprefix(COLUMN): value for key, value in request.query_params.items() if key.startswith(COLUMN)
    }
    searched_rows, error = _look_at_rows(store, name, epoch, wanted_values)
    columns = [c.name for c in relation.columns]
    return page(
        request,
        "rows.html",
        head=head_of(store, dag_id, user, session),
        tab="",
        name=name,
        epoch=epoch,
        asked=[(column, wanted_values.get(column, "")) for column in search_columns(relation)],
        prefix=COLUMN,
        given={column: value for column, value in wanted_values.items() if value and column in columns},
        searched_rows=searched_rows,
        error=error,
        columns=[] if searched_rows is None else searched_rows.rows.column_names,
        right=[] if searched_rows is None else [_is_number(kind) for kind in searched_rows.rows.schema.types],
        cells=[]
        if searched_rows is None
        else list(zip(*cell_texts(searched_rows.rows, store_zone(store.meta)), strict=True)),
        change=CHANGE,
        most=MOST_ROWS,
        search_s=SEARCH_S,
    )


def _find_relation(version: HummockVersion, name: str) -> Relation | None:
    return next((r for r in version.catalog.live_relations() if r.name == name and r.kind in WITH_ROWS), None)


def _look_at_rows(
    store: SeenStore, name: str, epoch: int | None, wanted: Mapping[str, str]
) -> tuple[RowsFacts | None, InputError | None]:
    """Return the rows, or the reason why the store has no answer to this question."""
    try:
        if epoch is None:
            return first_rows(store.meta, name, wanted), None
        return first_changes(store.meta, name, epoch, wanted), None
    except InputError as err:
        return None, err


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))
