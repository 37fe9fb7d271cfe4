"""A published table that fails does not delay other tables. If a table's folder is gone, the next publish rewrites
it. No Spark.
"""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.support.jobs.sinks.shop import Rows, Shop, in_order, read_back, sorted_rows
from tussock.jobs.sinks.publication import TablesNotPublishedError, tidy_tables


def newest(folder: Path, pattern: str) -> Path:
    return max(folder.glob(pattern))


def feature(table: Path) -> None:
    log = newest(table, "_delta_log/*.json")
    action = {
        "protocol": {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["x"], "writerFeatures": ["x"]}
    }
    log.with_name(f"{int(log.stem) + 1:020}.json").write_text(json.dumps(action))


def no_folder(table: Path) -> None:
    shutil.rmtree(table)
    table.write_text("a file")


DAMAGES: dict[str, dict[str, Callable[[Path], object]]] = {
    "delta": {
        "an entry of the log is cut": lambda t: (p := newest(t, "_delta_log/*.json")).write_bytes(p.read_bytes()[:40]),
        "an entry of the log is no JSON": lambda t: newest(t, "_delta_log/*.json").write_bytes(b"\xff\xfe{"),
        "an unknown feature": feature,
        "a file in the place of the folder": no_folder,
    },
    "parquet": {
        "the newest snapshot is cut": lambda t: (p := newest(t, "*.parquet")).write_bytes(p.read_bytes()[:40]),
        "the newest snapshot is empty": lambda t: newest(t, "*.parquet").write_bytes(b""),
        "a file in the place of the folder": no_folder,
        "a name that is no epoch": lambda t: (t / "zz.parquet").write_bytes(newest(t, "*.parquet").read_bytes()),
    },
}


def rows_of(shop: Shop, kind: str, name: str) -> Rows:
    table = Path(shop.settings.to, name)
    return read_back(str(table)) if kind == "delta" else sorted_rows(pq.read_table(newest(table, "*.parquet")))


@pytest.mark.parametrize("kind", DAMAGES)
@pytest.mark.sampled(2)
def test_a_broken_table_is_named_and_the_others_are_published(kind: str, tmp_path: Path) -> None:
    for number, (what, damage) in enumerate(DAMAGES[kind].items()):
        shop = Shop(tmp_path / str(number), seed=number, kind=kind)
        for _ in range(2):
            shop.change()
            shop.commit()
            shop.publish()
        damage(Path(shop.settings.to, "orders"))
        shop.change()
        shop.commit()
        with pytest.raises(TablesNotPublishedError) as raised:
            shop.publish()
        assert list(raised.value.failures) == ["orders"], what
        assert "run again" not in str(raised.value), what
        for name, rows in shop.model().items():
            if name != "orders":
                assert rows_of(shop, kind, name) == in_order(rows), (what, name)
        if kind == "delta":  # the cleanup does not read snapshots
            with pytest.raises(TablesNotPublishedError):
                tidy_tables(shop.meta, shop.settings, 0)
        shutil.rmtree(Path(shop.settings.to, "orders"), ignore_errors=True)
        Path(shop.settings.to, "orders").unlink(missing_ok=True)
        shop.publish()
        for name, rows in shop.model().items():
            assert rows_of(shop, kind, name) == in_order(rows), (what, name)


@pytest.mark.parametrize("kind", DAMAGES)
def test_a_table_whose_folder_is_gone_is_written_anew_by_the_next_publish(kind: str, tmp_path: Path) -> None:
    shop = Shop(tmp_path, kind=kind)
    shop.change()
    shop.commit()
    shop.publish()
    assert shop.publish() == ()
    for name in ("orders", "by_shop"):
        shutil.rmtree(Path(shop.settings.to, name))
    assert [table.relation for table in shop.publish() if table.changed] == ["orders", "by_shop"]
    for name, rows in shop.model().items():
        assert rows_of(shop, kind, name) == in_order(rows)
    assert shop.publish() == ()
