"""Delta tables of published relations, written without Spark.

They equal the relations at every epoch, even if publishers die or run twice.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.jobs.sinks import delta_without_spark as shared
from tests.support.jobs.sinks.delta_without_spark import check
from tests.support.jobs.sinks.shop import Shop

shop = shared.shop

ROOT = Path(__file__).resolve().parents[4]


def killed_publishes(folder: Path, kind: str, epochs: int) -> int:
    """Run publishes that are killed, each at a later step, twice per epoch, until one completes.

    Returns how many were killed.
    """
    shop, killed, step = Shop(folder, kind=kind), 0, 0
    for _ in range(epochs):
        shop.change()
        shop.commit()
        for _ in range(2):
            command = [
                sys.executable,
                "-m",
                "tests.support.jobs.sinks.publishing",
                shop.address,
                shop.settings.to,
                kind,
                str(step),
            ]
            code = subprocess.run(command, cwd=ROOT, check=False).returncode
            assert code in (0, -9)
            killed, step = (killed + 1, step + 1) if code else (killed, 0)
        shop.publish()
        check_kind(shop)
    return killed


def check_kind(shop: Shop) -> None:
    if shop.settings.kind == "delta":
        check(shop)
    else:
        from tests.unit.jobs.sinks.test_parquet import check_snapshots

        check_snapshots(shop)


@pytest.mark.kill
@pytest.mark.parametrize("kind", ["delta", pytest.param("parquet", marks=pytest.mark.deep)])
@pytest.mark.sampled(2)
def test_a_publish_that_is_killed_and_repeated_has_the_same_result(tmp_path: Path, kind: str) -> None:
    assert killed_publishes(tmp_path, kind, epochs=2) >= 2


@pytest.mark.kill
@pytest.mark.deep
def test_forty_killed_publishes_have_the_same_result_as_none(tmp_path: Path) -> None:
    assert killed_publishes(tmp_path, "delta", epochs=26) >= 40
