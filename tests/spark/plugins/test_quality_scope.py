"""A suite that cannot be used holds back its view, with Great Expectations on Spark as judge."""

import pyspark  # noqa: F401 (Great Expectations is imported once per process; one of these suites needs it with Spark)
import pytest
from tussock_steps import pipeline_of

from tests.support.jobs.quality.hidden_views import apply_suites
from tests.support.plugins import by_name as steps
from tests.support.plugins import quality_scope as shared
from tests.support.plugins.quality_scope import BROKEN, Shop
from tussock.jobs.quality.epoch_check import check_epoch
from tussock.jobs.quality.record import HeldViewsError, QualityVerdict
from tussock.jobs.quality.suite import read_suite

shop = shared.shop
pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore::tussock.jobs.reading.read.HeldViewWarning")]


@pytest.mark.parametrize("name", BROKEN)
def test_a_suite_that_cannot_be_used_holds_back_its_view_alone(
    shop: Shop, name: str, request: pytest.FixtureRequest
) -> None:
    broken, whole = (shop.folder / f"pipelines/shop/quality/{view}.json" for view in ("per_g", "keys"))
    whole.write_text('{"expectations": [{"type": "expect_table_row_count_to_be_between", "kwargs": {"min_value": 1}}]}')
    apply_suites(shop.meta, read_suite(whole))
    first = shop.change((0, 0, 1))
    shop.publish(first)
    broken.write_text(BROKEN[name])
    second = shop.change((7, 3, 1))
    pipeline = pipeline_of("shop")
    record = check_epoch(lambda _: request.getfixturevalue("spark"), shop.meta, pipeline, second)
    assert record.failed == ("per_g",)
    assert steps.verdict("shop", second) is QualityVerdict.FAILED
    assert steps.publish("shop", second).held == {"per_g": first, "sizes": first}
    shop.require(per_g=first, sizes=first, keys=second)
    with pytest.raises(HeldViewsError, match=r"view 'per_g': a usable suite: found .*per_g\.json: found "):
        steps.require_none_held_back("shop", second)
    broken.write_text('{"expectations": []}')
    steps.judge("shop", second)
    steps.publish("shop", second)
    shop.require(per_g=second, sizes=second, keys=second)
