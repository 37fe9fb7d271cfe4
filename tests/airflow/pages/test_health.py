"""Each condition of a pipeline's health on the pages: the badge, and the note with its whole text."""

import re
from html import unescape

import pytest
from tussock_pages.page import _templates

from tests.support.jobs.facts.conditions import conditions, healthy
from tests.unit.jobs.facts.test_status import files, shop
from tussock.jobs.facts.trouble import HealthVerdict, health_verdict
from tussock.statestore.meta.store import MetaStore

__all__ = ["files", "shop"]
pytestmark = [pytest.mark.airflow, pytest.mark.filterwarnings("ignore")]
PAGE = """{% from "parts.html" import health_badge, trouble_note with context %}{{ health_badge(troubles) }}
{% for t in troubles %}{{ trouble_note(t) }}{% endfor %}"""
BADGES = {
    HealthVerdict.HEALTHY: "healthy",
    HealthVerdict.ATTENTION: "needs attention",
    HealthVerdict.WRONG: "1 problem",
}
NOTES = {HealthVerdict.HEALTHY: "note", HealthVerdict.ATTENTION: "note warn", HealthVerdict.WRONG: "note bad"}


def test_each_condition_has_a_badge_and_a_note_with_its_whole_text(shop: MetaStore) -> None:
    template = _templates.from_string(PAGE)
    for kind, found in conditions(healthy(shop)).items():
        page = template.render(troubles=found)
        text = " ".join(unescape(re.sub(r"<[^>]*>", " ", page)).split())
        (trouble,) = found
        assert text.startswith(BADGES[health_verdict(found)]), kind
        assert f'<div class="{NOTES[health_verdict(found)]}">' in page, f"{kind}: the note has the colour of the badge"
        for part in (trouble.about, trouble.what, trouble.do):
            assert " ".join(part.replace("`", " ").split()) in text, f"{kind}: whole, and commands are marked as code"
