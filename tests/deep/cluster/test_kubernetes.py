"""The manifests for Kubernetes: a validator accepts them, and they submit an epoch as docs/clusters.md describes."""

import shutil
import subprocess

import pytest
import yaml

from scripts.cluster import ROOT

pytestmark = pytest.mark.deep

MANIFESTS = ROOT / "docker/kubernetes.yaml"


def test_a_validator_accepts_the_manifests() -> None:
    """uv fetches the validator, since its schemas of all versions need 100 MB."""
    if (uvx := shutil.which("uvx")) is None:
        pytest.skip("uvx is not installed")
    command = [uvx, "--from", "kubernetes-validate==1.37.0", "kubernetes-validate", "--strict", str(MANIFESTS)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("passed") == len(list(yaml.safe_load_all(MANIFESTS.read_text())))


def test_the_job_runs_an_epoch_in_client_mode() -> None:
    (job,) = [one for one in yaml.safe_load_all(MANIFESTS.read_text()) if one["kind"] == "CronJob"]
    (driver,) = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    assert "--deploy-mode=client" in driver["args"]
    assert "--conf=spark.driver.host=$(POD_IP)" in driver["args"]
    assert (ROOT / "tussock" / driver["args"][-3].removeprefix("/opt/tussock/")).exists()
