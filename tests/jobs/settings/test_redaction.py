"""Texts that leave the process contain no credentials."""

import logging
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.jobs.driver.embedded import new_store
from tussock.jobs.driver.run_record import last_run, record_failure, recorded
from tussock.jobs.settings.cause import cause_of
from tussock.jobs.settings.logs import RedactingFormatter
from tussock.jobs.settings.redaction import without_secrets
from tussock.jobs.submitted.exits import exit_code
from tussock.statestore.errors import InputError

SECRET = "wJalrXUtnFEMIK7MDENGbPxRfiCYEXAMPLEKEY"
TEXTS = {
    f"cannot reach postgresql://etl:{SECRET}@db/shop: refused": "cannot reach postgresql://etl:***@db/shop: refused",
    f"403 for https://b.s3.amazonaws.com/a.csv?X-Amz-Date=1&X-Amz-Signature={SECRET}&x=2": (
        "403 for https://b.s3.amazonaws.com/a.csv?X-Amz-Date=1&X-Amz-Signature=***&x=2"
    ),
    f"https://a.blob.core.windows.net/c/f?sv=1&sig={SECRET}": "https://a.blob.core.windows.net/c/f?sv=1&sig=***",
    f"Command: spark-submit --conf spark.hadoop.fs.s3a.secret.key={SECRET} a.py": (
        "Command: spark-submit --conf spark.hadoop.fs.s3a.secret.key=*** a.py"
    ),
    f"{{'aws_secret_access_key': '{SECRET}', 'region': 'eu'}}": "{'aws_secret_access_key': '***', 'region': 'eu'}",
    f'{{"password": "{SECRET} x", "user": "a"}}': '{"password": "***", "user": "a"}',
    f"Authorization: Bearer {SECRET}": "Authorization: Bearer ***",
    "the key AKIAIOSFODNN7EXAMPLE is unknown": "the key *** is unknown",
}
HARMLESS = (
    "syntax error near token: ')', expected a name",
    "Renew them (new values of AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN), then run it again.",
    "file s3://bucket/in/a.csv?endpoint=http://localhost:9000 has 3 columns, at 12:30:01 by a@b.org",
    "The row: k=100, token=5, g='x'",
)


@pytest.mark.parametrize(("text", "shown"), TEXTS.items(), ids=range(len(TEXTS)))
def test_credentials_are_hidden_and_the_rest_of_the_text_stays(text: str, shown: str) -> None:
    assert without_secrets(text) == shown
    assert without_secrets(shown) == shown


@pytest.mark.parametrize("text", HARMLESS, ids=range(len(HARMLESS)))
def test_other_texts_stay(text: str) -> None:
    assert without_secrets(text) == text


@pytest.mark.parametrize("word", ["secret", "password=", "a://", "access_key", "?sig", "'"])
def test_a_long_text_costs_no_more_than_its_length(word: str) -> None:
    began = time.process_time()
    without_secrets(word * 50_000)
    assert time.process_time() - began < 2


@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
def test_no_edge_of_the_process_shows_credentials(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    meta = new_store(tmp_path / "store")
    with suppress(ValueError), recorded(meta, "epoch", {"run": "r"}):
        raise ValueError(text)
    failed = last_run(meta.objects)
    record_failure(meta, "epoch", {"run": "next"}, failed.at + 1 if failed else 0, text)
    later = last_run(meta.objects)

    def job() -> None:
        raise InputError(text)

    assert exit_code(job) == 1
    line = logging.LogRecord("tussock.x", logging.WARNING, "x.py", 1, "%s", (text,), None)
    secret = "AKIAIOSFODNN7EXAMPLE" if "AKIA" in text else SECRET
    shown = (failed, later, capsys.readouterr().err, cause_of(ValueError(text)), RedactingFormatter().format(line))
    assert all(str(one) and secret not in str(one) for one in shown)
