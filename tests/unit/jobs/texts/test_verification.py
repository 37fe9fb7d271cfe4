from tussock.jobs.quality.measures import failing_view
from tussock.jobs.texts.verification import verification_text
from tussock.jobs.verify.record import Verdict, Verification, ViewCheck


def test_the_views_of_a_suite_have_their_names_for_people() -> None:
    text = verification_text(Verification((ViewCheck(failing_view("daily", ""), Verdict.UNVERIFIABLE, "no SELECT"),)))
    assert "failing of daily" in text
    assert "__quality__" not in text
