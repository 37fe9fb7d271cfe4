"""Texts that leave the process contain no credentials."""

import json
import logging
import random
import re
import string
import time
from argparse import Namespace
from contextlib import suppress
from pathlib import Path

import pytest
import yaml

from tests.support.jobs.driver.embedded import new_store
from tussock.jobs import submitted
from tussock.jobs.driver.run_record import last_run, record_failure, recorded_run
from tussock.jobs.settings.cause import cause_of
from tussock.jobs.settings.logs import RedactingFormatter
from tussock.jobs.settings.redaction import HIDDEN, has_credential, without_password, without_secrets
from tussock.statestore.errors import InputError

CASES = Path(__file__).parent / "cases"
SECRET = "q7Zt0pSECRETx9Lk"
WORD = "hunter"
_PLACE = re.compile(r"<(?:([SW])|(\d+):([ahA]))>")
_LETTERS = {"a": string.ascii_letters + string.digits, "h": "0123456789abcdef", "A": string.ascii_uppercase + "234567"}
# The text of a shape that is not <S> or <W> belongs to the credential too.
SHOWN = {
    "export DB_PASSWORD=<W>,b;c)d&e f": "export DB_PASSWORD=***",
    "https://u:<S>@<S>@host/x": "https://u:***@host/x",
    "https://u:<S>/<S>@host/x": "https://u:***@host/x",
    "pwd={<W>};user=sa": "pwd=***;user=sa",
    "sftp://u:1234@host/in": "sftp://u:***@host/in",
    "authorization: Basic dTpw": "authorization: Basic ***",
    "Cookie: session=<S>; a=b": "Cookie: ***",
    "Set-Cookie: id=<S>": "Set-Cookie: ***",
    "'Authorization': 'SharedKey acct:<S>='": "'Authorization': 'SharedKey ***'",
    "Authorization: AWS4-HMAC-SHA256 Credential=a/20260101/eu/s3/aws4_request, SignedHeaders=host, Signature=<64:h>": (
        "Authorization: AWS4-HMAC-SHA256 ***"
    ),
    '{"password": "<W> and <W>", "user": "a"}': '{"password": "***", "user": "a"}',
    '{"password":"a\\"<W>","user":1}': '{"password":"***","user":1}',
    "password='a''<W>', user='b'": "password='***', user='b'",
    "DefaultEndpointsProtocol=https;AccountName=a;AccountKey=<S>==;EndpointSuffix=core.windows.net": (
        "DefaultEndpointsProtocol=https;AccountName=a;AccountKey=***;EndpointSuffix=core.windows.net"
    ),
    "the key AKIA<16:A> is unknown": "the key *** is unknown",
    "CREATE USER u IDENTIFIED BY '<W>'": "CREATE USER u IDENTIFIED BY ***",
}


def _texts() -> list[str]:
    return [text for texts in yaml.safe_load((CASES / "credentials.yaml").read_text()).values() for text in texts]


ADDRESSES = {
    "postgresql://u:<W>@h/db": "postgresql://u:***@h/db",
    "postgresql://u:<W>/ss@h/db": "postgresql://u:***@h/db",
    "postgresql://u:12/<W>@h/db": "postgresql://u:***@h/db",
    "postgresql://u:<W>?ss@h/db": "postgresql://u:***@h/db",
    "postgresql://u:<W>@ss@h/db": "postgresql://u:***@h/db",
    "postgresql://u@h/db?password=<W>": "postgresql://u@h/db?password=***",
    "host=h password = <W>": "host=h password = ***",
}
NO_PASSWORD = (
    "postgresql://u@h:5432/db?options=a@b",
    "postgresql://h:5432,h2:5433/db?user=u@example.org",
    "postgresql:///db?host=/tmp&application_name=a:b@c",
    "host=h user=u passfile=/run/pass",
    "airflow:reporting",
)


@pytest.mark.parametrize("address", ADDRESSES)
def test_each_address_with_a_password_is_recognised_and_shown_without_it(address: str) -> None:
    assert has_credential(address.replace("<W>", WORD))
    assert without_password(address.replace("<W>", WORD)) == ADDRESSES[address]


@pytest.mark.parametrize("address", NO_PASSWORD)
def test_an_address_without_a_password_stays(address: str) -> None:
    assert not has_credential(address)
    assert without_password(address) == address


HARMLESS: list[str] = yaml.safe_load((CASES / "no_credentials.yaml").read_text())


def _filled(text: str) -> tuple[str, list[str]]:
    """The text with its credentials, and the credentials."""
    numbers, secrets = random.Random(text), list[str]()

    def fill(place: re.Match[str]) -> str:
        letters = _LETTERS[place[3] or "a"]
        made = "".join(numbers.choice(letters) for _ in range(int(place[2] or 2) - 2)) + letters[:1] + "7"
        secrets.append({"S": SECRET, "W": WORD}.get(place[1], made))
        return secrets[-1]

    return _PLACE.sub(fill, text), secrets


@pytest.mark.parametrize("case", _texts())
def test_credentials_are_hidden_and_the_rest_of_the_text_stays(case: str) -> None:
    text, secrets = _filled(case)
    shown = without_secrets(text)
    assert HIDDEN in shown
    assert not [secret for secret in secrets if secret in shown], shown
    assert without_secrets(shown) == shown
    if case in SHOWN:
        assert shown == SHOWN[case]
    for word in re.findall(r"user=\w+|region|https://[\w.]+/|\.py\b|host/x|--verbose", _PLACE.sub("", case)):
        assert word in shown


@pytest.mark.parametrize("text", HARMLESS)
def test_other_texts_stay(text: str) -> None:
    assert without_secrets(text) == text


def test_a_private_key_is_hidden_whole_and_cut() -> None:
    first, last = "-----BEGIN RSA PRIVATE KEY-----", "-----END RSA PRIVATE KEY-----"
    lines = "\n".join([first, *["MIIEpAIBAAKCAQEA7f" * 3] * 5, last])
    for text in (lines, lines[:150], json.dumps({"key": lines}), lines.replace("\n", " "), f"a {lines} b"):
        shown = without_secrets(text)
        assert "MII" not in shown
        assert f"{first}***" in shown
    assert without_secrets(f"a {lines} b") == f"a {first}***{last} b"


def test_the_folder_of_the_shell_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """`pwd` is a name of passwords, and PWD the current folder, which most texts with a path contain."""
    monkeypatch.setenv("PWD", "/home/ada/checkout")
    monkeypatch.setenv("OLDPWD", "/home/ada/data")
    monkeypatch.setenv("SHOP_PWD", "/home/ada/letters")
    text = "/home/ada/checkout/a.csv and /home/ada/data/b.csv and "
    assert without_secrets(f"{text}/home/ada/letters") == f"{text}***"


def test_the_value_of_a_secret_variable_is_hidden_in_any_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_DB_PASSWORD", "tr0ub4dor&3")
    monkeypatch.setenv("SHOP_DB_PASSWORD_FILE", "/run/secrets/db")
    assert without_secrets("got [tr0ub4dor&3] for /run/secrets/db") == "got [***] for /run/secrets/db"


@pytest.mark.parametrize(
    "word",
    [
        *("secret", "password=", "a://", "access_key", "?sig", "'", "token: ", "a://b:", "-----BEGIN PRIVATE KEY-----"),
        *("token=", "password,", "<password>", "secret_", "Cookie: ", "https://a", "eyJabcdefghij", "('password', '"),
        *("password=a,", "password=\\'", "--password ", "identified by ", " -u a", "{", "jdbc:oracle:thin:a/"),
        *("mysql ", "mysql -p", "az login ", "ldapadd -x ", "password is ", "password A1", "'name': 'password', "),
    ],
)
def test_a_long_text_costs_no_more_than_its_length(word: str) -> None:
    began = time.process_time()
    without_secrets(word * (200_000 // len(word)))
    assert time.process_time() - began < 4


@pytest.mark.parametrize("text", ["Authorization: Bearer <S>", "DB_PASSWORD=<S>", "the key AKIA<16:A> is unknown"])
def test_no_edge_of_the_process_shows_credentials(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text, (secret,) = _filled(text)
    meta = new_store(tmp_path / "store")
    with suppress(ValueError), recorded_run(meta, "epoch", {"run": "r"}):
        raise ValueError(text)
    failed = last_run(meta.objects)
    record_failure(meta, "epoch", {"run": "next"}, failed.at + 1 if failed else 0, text)
    later = last_run(meta.objects)

    def job(chosen: Namespace) -> None:
        raise InputError(text)

    monkeypatch.setitem(submitted.JOBS, "fails", submitted.Job("fails", lambda _: None, job))
    assert submitted.main(["fails"]) == 1
    line = logging.LogRecord("tussock.x", logging.WARNING, "x.py", 1, "%s", (text,), None)
    shown = (failed, later, capsys.readouterr().err, cause_of(ValueError(text)), RedactingFormatter().format(line))
    assert all(str(one) and secret not in str(one) for one in shown)
