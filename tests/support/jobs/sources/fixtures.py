"""An S3 bucket for sources."""

from collections.abc import Callable, Iterator

import boto3
import pytest

from tests.support.s3_servers import BUCKET, moto_server


@pytest.fixture(scope="package")
def s3_bucket() -> Iterator[tuple[str, Callable[[str, bytes], None]]]:
    """(`s3://bucket?endpoint=…`, a function that writes an object)."""
    with moto_server() as endpoint:
        client = boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1")

        def put(name: str, data: bytes) -> None:
            client.put_object(Bucket=BUCKET, Key=name, Body=data)

        yield f"s3://{BUCKET}?endpoint={endpoint}&path_style=true&region=us-east-1", put
