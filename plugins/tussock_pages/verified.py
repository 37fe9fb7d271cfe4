"""The page of verifications: the last comparison of each view with Spark's answer."""

from airflow.api_fastapi.common.db.common import SessionDep
from fastapi import APIRouter, Request
from fastapi.responses import Response

from tussock.jobs.facts.moment import epoch_moment
from tussock.jobs.verify.record import Verdict, Verification, read_last
from tussock_pages.dag import head_of, store_of
from tussock_pages.guard import READS_RUNS, User
from tussock_pages.page import page

_FIRST = (Verdict.DIFFERENT, Verdict.UNVERIFIABLE, Verdict.PAUSED, Verdict.BUILDING, Verdict.EQUAL)
MOST_VIEWS = 500  # per page; views that differ come first

router = APIRouter(dependencies=[READS_RUNS])


@router.get("/dags/{dag_id}/verified")
def verified_page(request: Request, user: User, session: SessionDep, dag_id: str) -> Response:
    """Show one row per view, differing ones first, with a few of the differing rows."""
    store = store_of(dag_id)
    verification = read_last(store.meta.objects) or Verification(())
    checks = sorted(verification.views, key=lambda view: _FIRST.index(view.verdict))
    head = head_of(store, dag_id, user, session)
    if not head.rights.may_see_rows:
        checks = [check.without_values() for check in checks]
    views = [(check, epoch_moment(check.epoch) if check.epoch else None) for check in checks[:MOST_VIEWS]]
    counts = [
        (verdict, len(verification.with_verdict(verdict))) for verdict in _FIRST if verification.with_verdict(verdict)
    ]
    return page(
        request,
        "verified.html",
        head=head,
        tab="verified",
        views=views,
        counts=counts,
        repair=verification.repair,
        total=len(checks),
        may_see_rows=head.rights.may_see_rows,
    )
