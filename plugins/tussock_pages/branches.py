"""The page of branches: the open branches of a store, and what its last previews changed."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from airflow.api_fastapi.common.db.common import SessionDep
from fastapi import APIRouter, Request
from fastapi.responses import Response

from tussock.jobs.catalog.store_zone import store_zone
from tussock.jobs.compare.preview_record import Preview, read_previews
from tussock.jobs.compare.record import RelationDifference
from tussock.jobs.facts.branches import list_branches
from tussock.jobs.texts.comparison import counts_text, headline, notes_of, sample_cells
from tussock.jobs.texts.comparison_page import difference_picture
from tussock.jobs.texts.preview_report import preview_headline
from tussock.statestore.meta.epoch import time_of_ms
from tussock_pages.dag import head_of, store_of
from tussock_pages.guard import READS_RUNS, User
from tussock_pages.page import Html, page

router = APIRouter(dependencies=[READS_RUNS])


@dataclass(frozen=True, slots=True)
class ShownView:
    """One view that differs in a preview. Without the right to see rows, `picture`, `header` and `rows` are empty."""

    name: str
    counts: str
    notes: tuple[str, ...]
    picture: Html
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class ShownPreview:
    """One preview."""

    preview: Preview
    at: datetime
    about: str
    result: str
    views: tuple[ShownView, ...]


@router.get("/dags/{dag_id}/branches")
def branches_page(request: Request, user: User, session: SessionDep, dag_id: str) -> Response:
    """Show the open branches, and the last previews with the rows that differ."""
    store = store_of(dag_id)
    head = head_of(store, dag_id, user, session)
    branches = store.look("branches", list_branches)
    zone = store_zone(store.meta)
    may_see_rows = head.rights.may_see_rows
    previews = [_shown_preview(one, zone, may_see_rows) for one in read_previews(store.meta.objects)]
    return page(
        request,
        "branches.html",
        head=head,
        tab="branches",
        branches=branches,
        previews=previews,
        prices=store.pipeline.prices,
        may_see_rows=may_see_rows,
    )


def _shown_preview(preview: Preview, zone: Any, may_see_rows: bool) -> ShownPreview:
    views = tuple(_shown_view(view, zone, may_see_rows) for view in preview.difference.views if view.differs)
    at = time_of_ms(preview.ended_ms)
    return ShownPreview(preview, at, preview_headline(preview), headline(preview.difference), views)


def _shown_view(view: RelationDifference, zone: Any, may_see_rows: bool) -> ShownView:
    about = view.name, counts_text(view), tuple(notes_of(view))
    if not may_see_rows:
        return ShownView(*about, Html(""), (), ())
    header, rows = sample_cells(view, zone) if view.samples.num_rows else ([], [])
    picture = Html(difference_picture(view) if view.rows else "")
    return ShownView(*about, picture, tuple(header), tuple(rows))
