"""All reading commands, with permission only to read the bucket.

S3 answers 403 to every write, in this process and in workers.
"""

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tests.support.lossy_proxy import LossyProxy
from tests.support.s3_servers import BUCKET, KEY, SECRET, moto_server
from tests.support.truth.compare import assert_same_answer
from tussock.jobs import cli
from tussock.jobs.session import Session
from tussock.statestore.meta.readers import UnpinnedReadWarning
from tussock.statestore.objectstore.base import AccessDeniedError

pytestmark = pytest.mark.spark

DENIED = (
    b"<?xml version='1.0' encoding='UTF-8'?><Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"
)
ROWS = {1: "(1, 7, 1.5), (2, 7, 2.0), (3, 8, 4.0)", 2: "(1, 7, 1.5), (2, 9, 2.5), (3, 8, 4.0)"}
BY_SHOP = "SELECT shop, count(*) AS n, sum(amount) AS total FROM orders GROUP BY shop"


class ReadOnlyProxy(LossyProxy):
    """A proxy that restricts an S3 server to GetObject and ListBucket. `refused` lists all other requests."""

    refused: list[str]

    def forward(self, request: BaseHTTPRequestHandler) -> None:
        if request.command in ("GET", "HEAD"):
            super().forward(request)
            return
        self.refused.append(f"{request.command} {request.path}")
        if request.headers.get("Expect", "").lower() != "100-continue":
            request.rfile.read(int(request.headers.get("Content-Length", 0)))
        request.send_response_only(403, "Forbidden")
        request.send_header("Content-Length", str(len(DENIED)))
        request.send_header("Connection", "close")
        request.end_headers()
        request.wfile.write(DENIED)
        request.close_connection = True


@pytest.fixture
def endpoints(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, ReadOnlyProxy]]:
    """Two endpoints of one server: one allows everything, one only reads."""
    for name, value in {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET}.items():
        monkeypatch.setitem(spark.sparkContext.environment, name, value)
    with moto_server() as endpoint, ReadOnlyProxy(endpoint) as proxy:
        proxy.refused = []
        yield endpoint, proxy


@pytest.mark.filterwarnings("ignore::tussock.statestore.meta.readers.UnpinnedReadWarning")
@pytest.mark.deep
def test_every_way_to_read_needs_only_read_permission(
    spark: SparkSession, endpoints: tuple[str, ReadOnlyProxy], capsys: pytest.CaptureFixture[str]
) -> None:
    endpoint, proxy = endpoints
    with Session(f"s3://{BUCKET}/read_only?endpoint={endpoint}&path_style=true", spark) as writer:
        writer.execute("CREATE TABLE orders (id int, shop int, amount double, PRIMARY KEY (id))")
        writer.execute(
            f"CREATE MATERIALIZED VIEW by_shop AS {BY_SHOP}; CREATE VIEW many AS SELECT * FROM by_shop WHERE n > 1"
        )
        writer.execute(f"INSERT INTO orders VALUES {ROWS[1]}")
        first = writer.flush().epoch
        writer.execute("UPDATE orders SET shop = 9, amount = 2.5 WHERE id = 2")
        last = writer.flush().epoch
    truth = spark.newSession()
    for chapter, rows in ROWS.items():
        truth.sql(
            f"SELECT id, shop, CAST(amount AS double) AS amount FROM VALUES {rows} AS t(id, shop, amount)"
        ).createOrReplaceTempView("orders")
        truth.sql(BY_SHOP).createOrReplaceTempView(f"by_shop_{chapter}")

    def judged(sql: str) -> pa.Table:
        return truth.sql(sql).toArrow()

    store = f"s3://{BUCKET}/read_only?endpoint={proxy.endpoint}&path_style=true"
    with Session(store, spark, create=False) as session:
        with pytest.warns(UnpinnedReadWarning, match="is read without a pin"):
            found = session.read("by_shop")
        assert_same_answer(found, judged("SELECT * FROM by_shop_2"), "read")
        assert_same_answer(session.read("by_shop", epoch=first), judged("SELECT * FROM by_shop_1"), "read at an epoch")
        gone = "SELECT *, 'delete' AS _change_type FROM (SELECT * FROM by_shop_1 EXCEPT SELECT * FROM by_shop_2)"
        come = "SELECT *, 'insert' AS _change_type FROM (SELECT * FROM by_shop_2 EXCEPT SELECT * FROM by_shop_1)"
        changes = judged(f"{gone} UNION ALL {come}")
        assert_same_answer(session.changes("by_shop", first), changes, "changes")
        asked = f"SELECT shop, n, total, _change_type FROM table_changes('by_shop', {first}, {last})"
        assert_same_answer(session.query(asked), changes, "table_changes")
        assert_same_answer(
            session.query("SELECT * FROM many"), judged("SELECT * FROM by_shop_2 WHERE n > 1"), "a plain view"
        )
        (answer,) = session.execute(
            f"SELECT a.n, b.total FROM by_shop VERSION AS OF {first} a JOIN by_shop b USING (shop)"
        )
        assert answer.table is not None
        joined = judged("SELECT a.n, b.total FROM by_shop_1 a JOIN by_shop_2 b USING (shop)")
        assert_same_answer(answer.table, joined, "two epochs")
        assert_same_answer(session.table("by_shop").toArrow(), judged("SELECT * FROM by_shop_2"), "a DataFrame")
        assert_same_answer(
            session.table("many", first).toArrow(), judged("SELECT * FROM by_shop_1 WHERE n > 1"), "of a plain view"
        )
        session.execute("SHOW views; DESCRIBE orders; EXPLAIN SELECT shop FROM orders")
        assert cli.main(["read", "by_shop", "--store", store, "--columns", "n", "--json", "--epoch", str(first)]) == 0
        assert sorted(json.loads(line)["n"] for line in capsys.readouterr().out.splitlines()) == [1, 2]
        assert cli.main(["read", "by_shop", "--store", store, "--since", str(first), "--csv"]) == 0
        assert len(capsys.readouterr().out.splitlines()) == 1 + changes.num_rows
        assert cli.main(["query", "--store", store, f"SELECT count(*) AS n FROM orders VERSION AS OF {first}"]) == 0
        assert "3" in capsys.readouterr().out
        assert {path.split("/meta/")[1].split("/")[0] for path in proxy.refused} == {"pin"}, (
            "nothing else was ever to be written"
        )
        with pytest.raises(AccessDeniedError, match="AccessDenied"):
            session.execute("INSERT INTO orders VALUES (4, 4, 4)")
