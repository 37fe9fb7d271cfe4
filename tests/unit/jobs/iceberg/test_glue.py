"""Tables in a bucket, in the catalog of Glue: a sink publishes them, and a source follows them. The server is moto."""

from pathlib import Path

import msgspec
import pytest

from tests.support.jobs.driver.embedded import append, new_store, rows
from tests.support.jobs.sinks.shop import Shop, in_order
from tests.support.s3_servers import BUCKET, moto_process
from tussock.jobs.barriers.source_holds import require_not_held
from tussock.jobs.driver.epoch import advance_store
from tussock.jobs.driver.runner import LocalRunner
from tussock.jobs.iceberg.catalogs import CatalogAddress
from tussock.jobs.iceberg.iceberg_errors import CatalogAccessError, CatalogAwayError, MissingIcebergTableError
from tussock.jobs.logical.nodes import Field, Scan
from tussock.jobs.logical.statements import CreateSource, CreateView

FIELDS = Field("id", "bigint"), Field("shop", "string")


def test_a_source_follows_the_table_that_a_sink_publishes_through_glue(tmp_path: Path) -> None:
    with moto_process() as endpoint:
        shop = Shop(tmp_path, kind="iceberg", to=f"s3://{BUCKET}/tables?endpoint={endpoint}&path_style=true")
        glue = {"type": "glue", "glue.endpoint": endpoint, "glue.region": "us-east-1"}
        catalog = {"name": "aws", "warehouse": f"s3://{BUCKET}/tables", **glue}
        shop.settings = msgspec.structs.replace(shop.settings, catalog=catalog, relations=("orders",))
        options = {f"catalog.{name}": value for name, value in catalog.items() if name != "name"}
        place = {"catalog": "aws", "table": "tussock.orders", "endpoint": endpoint, "path_style": "true"}
        meta = new_store(tmp_path / "copy")
        source = CreateSource("s", "iceberg", FIELDS, {**place, "region": "us-east-1", **options})
        append(meta, source, CreateView("copy", "SELECT * FROM s", Scan("s", (0, 1), FIELDS)))
        for _ in range(2):
            shop.change()
            shop.commit()
            shop.publish()
            advance_store(LocalRunner(), meta)
            require_not_held(meta.read_latest().catalog)
            assert in_order(rows(meta, "copy")) == in_order([row[:2] for row in shop.model()["orders"]])
        with pytest.raises(MissingIcebergTableError, match="has no table"):
            CatalogAddress("aws", glue).load_table("tussock.none")


def test_a_server_that_denies_or_does_not_answer_is_told_apart() -> None:
    from botocore.exceptions import ClientError, EndpointConnectionError
    from pyiceberg.exceptions import ForbiddenError, OAuthError, ServiceUnavailableError, UnauthorizedError

    denied = ClientError({"Error": {"Code": "AccessDeniedException", "Message": "no"}}, "GetTable")
    for error in (denied, ForbiddenError("no right to commit"), UnauthorizedError("who"), OAuthError("bad client")):
        with (
            pytest.raises(CatalogAccessError, match="did not allow to commit to the table"),
            CatalogAddress("lake").translating_errors("commit to the table db.t", "db.t"),
        ):
            raise error
    for error in (EndpointConnectionError(endpoint_url="http://x"), ServiceUnavailableError("busy")):
        with (
            pytest.raises(CatalogAwayError, match="failed to open it"),
            CatalogAddress("lake").translating_errors("open it"),
        ):
            raise error
