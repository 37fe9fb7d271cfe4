"""The Python session and the command line with store and source in S3: the same answers, few requests, and a clear
error if S3 is down.
"""

import os
import socket
import time
from collections.abc import Iterator

import pytest

from tests.support.end_to_end import store_in_s3 as shared
from tests.support.s3_servers import KEY, SECRET
from tussock.jobs import cli

bucket = shared.bucket
REFUSED_WITHIN_S = 20  # up to four attempts and their backoff, with room for a busy machine


@pytest.fixture
def refusing() -> Iterator[str]:
    """A store's address at a port that refuses connections; the port stays reserved."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"s3://bucket/store?endpoint=http://127.0.0.1:{taken.getsockname()[1]}&path_style=true"


@pytest.mark.parametrize(
    "command",
    [
        ("init",),
        ("show",),
        ("epoch",),
        ("query", "SELECT 1"),
        ("explain",),
        ("inspect", "versions"),
        ("barrier", "show"),
    ],
    ids=lambda command: command[0],
)
def test_every_command_reports_that_an_endpoint_refuses(
    command: tuple[str, ...], refusing: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    log_in(monkeypatch)
    start = time.monotonic()
    assert cli.main([*command, "--store", refusing]) == 1
    assert time.monotonic() - start < REFUSED_WITHIN_S
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith("error: ")
    assert (
        f"failed at {refusing}: the endpoint refuses connections, or its host name is unknown. Check the endpoint"
        in told.err
    )
    assert told.err.count("\n") <= 2, "one message, no traceback"


def test_applying_a_pipeline_reports_that_its_endpoint_refuses(
    refusing: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    log_in(monkeypatch)
    monkeypatch.setenv("FLIGHTS_STORE", refusing)
    start = time.monotonic()
    assert cli.main(["apply", "flights"]) == 1
    assert time.monotonic() - start < REFUSED_WITHIN_S
    assert f"failed at {refusing}: the endpoint refuses connections" in capsys.readouterr().err


def test_an_endpoint_without_credentials_names_their_origin(
    refusing: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in list(os.environ):
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)
    monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)
    assert cli.main(["show", "--store", refusing]) == 1
    assert "Credentials for S3 come from boto3's standard chain" in capsys.readouterr().err


def log_in(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET}.items():
        monkeypatch.setenv(name, value)
