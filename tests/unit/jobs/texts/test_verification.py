from tussock.jobs.quality.measures import failing_view
from tussock.jobs.texts.verification import verification_text
from tussock.jobs.verify.record import Verdict, Verification, ViewCheck


def test_the_views_of_a_suite_have_their_names_for_people() -> None:
    text = verification_text(Verification((ViewCheck(failing_view("daily", ""), Verdict.UNVERIFIABLE, "no SELECT"),)))
    assert "failing of daily" in text
    assert "__quality__" not in text


def test_a_difference_that_ties_explain_says_so() -> None:
    check = ViewCheck("hourly", Verdict.DIFFERENT, missing=1, extra=1, order_dependent=("LIMIT", "max_by"))
    assert (
        "hourly: if rows are equal in the order of LIMIT or max_by, several answers are right, and Spark's need not be "
        "the view's. Compare again with an order in which no two rows are equal"
    ) in verification_text(Verification((check,)))
