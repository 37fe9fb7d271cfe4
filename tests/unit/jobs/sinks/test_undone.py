"""After an undo, published tables have the rows of the earlier epoch, and go on from them."""

from copy import deepcopy
from pathlib import Path

import msgspec
import pytest

from tests.support.jobs.sinks.delta_without_spark import check
from tests.support.jobs.sinks.shop import Shop, statements
from tussock.jobs.barriers.undo import inject_undo
from tussock.jobs.driver.epoch import run_epoch
from tussock.jobs.driver.runner import LocalRunner
from tussock.jobs.logical.statements import CreateView, Transaction


@pytest.mark.parametrize("replaced", [False, True])
def test_an_undo_reaches_a_delta_table_as_a_difference(tmp_path: Path, replaced: bool) -> None:
    shop = Shop(tmp_path)
    shop.change()
    good = shop.commit()
    shop.publish()
    rows = deepcopy((shop.orders, shop.ratios, shop.events))
    if replaced:
        (view,) = (s for s in statements() if isinstance(s, CreateView) and s.name == "by_shop")
        shop.append(Transaction((msgspec.structs.replace(view, or_replace=True, rebuilt=True),)))
    shop.empty() if not replaced else shop.change()
    shop.commit()
    shop.publish()
    check(shop)

    barrier = inject_undo(shop.meta, good, keeps_input=None, run={})
    run_epoch(LocalRunner(), shop.meta, barrier)
    shop.meta.publish(barrier.epoch)
    shop.orders, shop.ratios, shop.events = rows
    shop.publish()
    check(shop)
    shop.change()
    shop.commit()
    shop.publish()
    check(shop)
