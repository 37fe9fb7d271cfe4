"""The promises of docker/'s files about users, secrets, ports and versions. The last test, a deep one, runs them."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]
DOCKER = ROOT / "docker"
DOCKERFILE = (DOCKER / "Dockerfile").read_text().replace("\\\n", " ")
COMPOSE = yaml.safe_load((DOCKER / "compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
SECRET = re.compile(r"KEY|SECRET|PASSWORD|TOKEN")
REQUIRED = re.compile(r"\$\{(\w+):\?[^}]+\}")
services = pytest.mark.parametrize("service", SERVICES.values(), ids=SERVICES.keys())


def stages() -> dict[str, list[str]]:
    """Each stage's instructions by its name, after the ones of its base. The last one's name is `""`."""
    found: dict[str, list[str]] = {}
    for text in re.split(r"^(?=FROM )", DOCKERFILE, flags=re.M)[1:]:
        first, *rest = [line for line in text.splitlines() if line and not line.startswith("#")]
        base, name = re.fullmatch(r"FROM (\S+)(?: AS (\S+))?", first).groups()  # type: ignore[union-attr]
        found[name or ""] = [*found.get(base, [first]), *rest]
    return found


def values_of(instruction: str) -> list[str]:
    """The texts after an instruction's keyword, at any place."""
    return [line.split(None, 1)[1] for lines in stages().values() for line in lines if line.split()[0] == instruction]


@services
def test_a_service_runs_as_a_user_without_rights_and_cannot_write_its_image(service: dict[str, Any]) -> None:
    image = stages()[service["build"].get("target", "")]
    assert [line for line in image if line.startswith("USER ")] == ["USER 10001:10001"]
    assert "user" not in service
    assert "privileged" not in service
    assert "cap_add" not in service
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]


@services
def test_a_service_is_reachable_only_from_this_machine_and_reports_its_health(service: dict[str, Any]) -> None:
    assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))
    assert service["healthcheck"]["test"][0] == "CMD"
    for name, wanted in service.get("depends_on", {}).items():
        assert wanted == {"condition": "service_healthy"}
        assert "healthcheck" in SERVICES[name]


def test_every_secret_is_the_users_own(tmp_path: Path) -> None:
    required = set()
    for service in SERVICES.values():
        for name, value in service["environment"].items():
            if SECRET.search(name):
                assert REQUIRED.fullmatch(value), f"{name} is {value}"
                required |= set(REQUIRED.findall(value))
    subprocess.run([DOCKER / "secrets.sh", tmp_path / "made"], check=True)
    assert required == {line.split("=")[0] for line in (tmp_path / "made").read_text().splitlines()}
    assert "secrets" not in COMPOSE
    assert {
        name
        for text in [*values_of("ENV"), *values_of("ARG")]
        for name in re.findall(r"(\w+)=", text)
        if SECRET.search(name)
    } == set()


def test_secrets_are_random_for_their_owner_alone_and_are_kept(tmp_path: Path) -> None:
    texts = []
    for name in ("one", "other"):
        subprocess.run(["sh", "-c", f"umask 0; exec {DOCKER}/secrets.sh {tmp_path / name}"], check=True)
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o600
        texts.append((tmp_path / name).read_text())
    values = [line.split("=")[1] for text in texts for line in text.splitlines()]
    assert len(set(values)) == 6
    assert min(map(len, values)) >= 20
    subprocess.run([DOCKER / "secrets.sh", tmp_path / "one"], check=True)
    assert (tmp_path / "one").read_text() == texts[0]
    ignored = subprocess.run(["git", "check-ignore", "-q", "docker/.env"], cwd=ROOT)
    assert ignored.returncode == 0


def test_sparks_secret_reaches_a_file_and_not_the_environment(tmp_path: Path) -> None:
    env = {"PATH": os.environ["PATH"], "SPARK_CONF_DIR": str(tmp_path / "conf")}
    run = [DOCKER / "entrypoint.sh", "env"]
    plain = subprocess.run(run, env=env, capture_output=True, text=True, check=True)
    assert "SPARK_CONF_DIR" in plain.stdout
    assert not (tmp_path / "conf").exists()
    said = subprocess.run(run, env={**env, "SPARK_SECRET": "made-up"}, capture_output=True, text=True, check=True)
    assert "made-up" not in said.stdout
    file = tmp_path / "conf/spark-defaults.conf"
    assert file.stat().st_mode & 0o777 == 0o600
    assert dict(line.split(None, 1) for line in file.read_text().splitlines()) == {
        "spark.authenticate": "true",
        "spark.authenticate.secret": "made-up",
        "spark.network.crypto.enabled": "true",
        "spark.master.rest.enabled": "false",
    }


def test_every_image_starts_from_the_one_base() -> None:
    assert re.findall(r"^ARG BASE=(\S+)", DOCKERFILE, re.M) == ["debian:bookworm-slim"]
    bases = re.findall(r"^FROM (\S+)(?: AS (\S+))?", DOCKERFILE, re.M)
    assert {base for base, _ in bases} <= {"${BASE}", *(name for _, name in bases)}


def test_versions_are_those_of_set_up_and_of_the_documents() -> None:
    arguments = dict(text.split("=") for text in values_of("ARG"))
    assert f"UV_VERSION={arguments['UV_VERSION']}\n" in (ROOT / "scripts/setup.sh").read_text()
    sums = (DOCKER / "go/go.sum").read_text()
    for architecture in ("amd64", "arm64"):
        assert f"golang.org/toolchain v0.0.1-go{arguments['GO_VERSION']}.linux-{architecture} h1:" in sums
    modules = (DOCKER / "s3/go.mod").read_text()
    (wanted,) = re.findall(r"^go (\S+)", modules, re.M)
    assert [int(part) for part in arguments["GO_VERSION"].split(".")] >= [int(part) for part in wanted.split(".")]
    (version,) = re.findall(r"github.com/versity/versitygw (v\S+)", modules)
    assert f"github.com/versity/versitygw {version} h1:" in (DOCKER / "s3/go.sum").read_text()
    assert f"cmd/versitygw@{version}\n" in (ROOT / "docs/clusters.md").read_text()


def test_the_images_get_the_locked_packages_that_users_need() -> None:
    files = ("pyproject.toml", "requirements.lock", "docker/packages.py")
    assert next(text for text in values_of("COPY") if text.startswith(files[0])).split()[:3] == list(files)
    lock = (ROOT / "requirements.lock").read_text()
    run = (
        "import packages, sys; print(chr(10).join(packages.named(open(sys.argv[1]).read(), open(sys.argv[2]).read())))"
    )
    command = [sys.executable, "-c", run, ROOT / "pyproject.toml", ROOT / "requirements.lock"]
    named = subprocess.run(
        command,
        cwd=DOCKER,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    pins = re.findall(r"^([\w.-]+)(?:\[\S+\])?==(\S+)", named.stdout, re.M)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = project["project"]["optional-dependencies"]
    for_users = [text for extra in extras if extra not in ("all", "openlineage", "test") for text in extras[extra]]
    groups = project["dependency-groups"]
    wanted = [*project["project"]["dependencies"], *for_users, *groups["build"], *groups["demo"]]
    assert {name for name, _ in pins} == {re.split(r"[<>=!~\[ ]", text)[0] for text in wanted} - {"tussock"}
    assert all(f"{name}=={version}" in lock for name, version in pins)
    assert len(re.findall(r"==\S+[^\n]*\\\n +--hash=sha256:", named.stdout)) == len(pins)


def test_only_named_files_are_sent_to_the_builder() -> None:
    lines = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and not line.startswith("#")]
    assert lines[0] == "*"
    named = [line[1:] for line in lines if line.startswith("!")]
    assert all((ROOT / name).exists() for name in named)
    tracked = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", *named], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert all(
        any(file == name or file.startswith(f"{name}/") for file in tracked.stdout.splitlines()) for name in named
    )
    hidden = {".airflow", ".tussock", ".git", ".venv", "docker/.env", "docker"}
    assert not hidden & set(named)
    assert lines.index("**/.*") > max(lines.index(f"!{name}") for name in named if not Path(name).name.startswith("."))


@pytest.mark.deep
@pytest.mark.timeout(5400)
@pytest.mark.skipif(
    os.getuid() != 0 or not Path("/etc/debian_version").exists(),
    reason="makes its base with debootstrap, as root of a Debian",
)
def test_images_are_built_and_run_the_flights_without_an_image_registry() -> None:
    run = subprocess.run([sys.executable, "scripts/containers.py"], cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout[-5000:] + run.stderr[-10000:]
    assert "all equal to Spark" in run.stdout
