"""End-to-end test of docker/: build the images without a registry, and run docker/compose.yaml with the flights.

    python3 scripts/containers.py                    everything; removes all that it created
    python3 scripts/containers.py --folder FOLDER    keeps the images there; a second run builds only what has changed

1. Creates a base with debootstrap, from this machine's Debian mirror, and builds the three images from it with buildah.
   This machine's package settings are build secrets. They include a random mark that no image may contain.
2. Searches the images for the mark, for settings of this machine, and for paths that their user can write.
3. Creates secrets, as `make secrets` does, and starts compose's services with podman. Each container has its own user,
   capabilities and read-only root, on a separate network, with versitygw as the bucket.
4. Loads days of flights, applies the pipeline, and unpauses its DAG. Airflow's scheduler then runs them on the Spark
   cluster.
5. Recomputes every view with Spark over the same files, and compares.
6. Checks the running containers: users, capabilities, writable paths, ports, and secrets in logs.
7. Runs a day of `make demo` in the image alone, which has a local Spark.

Requires root, Debian's mirror, PyPI, a Go proxy, and 15 GB of disk in FOLDER or /var/tmp. Podman's storage and settings
are separate from the machine's.
"""

import argparse
import json
import os
import re
import resource
import secrets
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
COMPOSE = ROOT / "docker" / "compose.yaml"
SUITE = "bookworm"
BASE = "localhost/tussock-base"
IMAGES = {"tussock-s3": "s3", "tussock-worker": "worker", "tussock": None}
"""Each image with its target in docker/Dockerfile."""
UID = 10001
PROJECT = "tussock-proof"
PODMAN_COMPOSE = "podman-compose==1.6.0"  # Debian's version does not support conditions of depends_on
DEBIAN_PACKAGES = ("aardvark-dns", "buildah", "debootstrap", "iptables", "netavark", "podman", "python3-venv", "runc")
WRITABLE = ("/tmp", "/var/tmp", "/run/lock", "/home/tussock", "/data", "/opt/tussock/.airflow", "/opt/tussock/.tussock")
"""Paths, with their content, that an image's user may write if the root is not read-only."""
PACKAGE_SETTINGS = re.compile(
    r"(PIP|UV)_((EXTRA_)?INDEX_URL|(DEFAULT_)?INDEX|TRUSTED_HOST|INSECURE_HOST|DEFAULT_TIMEOUT|HTTP_TIMEOUT|RETRIES)"
    r"|GO(PROXY|SUMDB|NOSUMDB|PRIVATE|NOPROXY|INSECURE)|(HTTPS?|NO)_PROXY|(https?|no)_proxy"
)
START_TIMEOUT_S = 300.0
RUNS_TIMEOUT_S = 1200.0


class ProofError(Exception):
    """A step failed, or something differs from docs/containers.md; the message contains the details."""


@dataclass
class Proof:
    """One run in its own folder.

    Args:
        environment: for podman, buildah and podman-compose, with their storage and settings in the folder.
        mark: a random text among the build's secrets.
        seen: pairs of a subject and a finding, for the summary.
    """

    folder: Path
    days: int
    environment: dict[str, str]
    mark: str
    seen: list[tuple[str, str]] = field(default_factory=list)

    def note(self, subject: str, finding: str) -> None:
        print(f"   {subject}: {finding}", flush=True)
        self.seen.append((subject, finding))

    def run(self, *command: str | Path, timeout_s: float = 3600.0, **more: str) -> str:
        """Run a command and return its output. Raises ProofError with the end of the output if it fails.

        Args:
            more: further environment variables.
        """
        texts = [str(part) for part in command]
        with tempfile.TemporaryFile("w+") as said:  # not a pipe, which a process started by podman may keep open
            done = subprocess.run(
                texts,
                cwd=ROOT,
                env={**self.environment, **more},
                stdout=subprocess.PIPE,
                stderr=said,
                timeout=timeout_s,
            )
            said.seek(0)
            errors = said.read()
        output = done.stdout.decode(errors="replace")
        if done.returncode:
            raise ProofError(
                f"{shlex.join(texts)[:300]}: exit code {done.returncode}\n{output[-3000:]}\n{errors[-5000:]}"
            )
        return output

    def fails(self, *command: str) -> bool:
        """Whether a command fails."""
        return subprocess.run(command, env=self.environment, capture_output=True, timeout=60).returncode != 0

    def inspect(self, kind: str, name: str) -> dict[str, Any]:
        (found,) = json.loads(self.run("podman", kind, "inspect", name))
        return dict(found)


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Build the images without a registry, and test compose's services and the flights in them."
    )
    parser.add_argument("--days", type=int, default=3, help="days of flights to run (default: %(default)s)")
    parser.add_argument(
        "--folder", type=Path, help="keep the images there (default: a new folder in /var/tmp, removed at the end)"
    )
    given = parser.parse_args()
    started = time.monotonic()
    try:
        ensure_tools()
        with working_folder(given.folder) as folder:
            proof = Proof(folder, given.days, settings_of_podman(folder), mark_of(folder))
            try:
                prove(proof)
            finally:
                remove_containers(proof)
    except (ProofError, subprocess.TimeoutExpired) as err:
        print(f"\ncontainers: {err}", file=sys.stderr)
        return 1
    print("\nSummary of the checks")
    for subject, finding in proof.seen:
        print(f"  {subject:<24}{finding}")
    print(
        f"\nThe images and docker/compose.yaml work as docs/containers.md describes. "
        f"{time.monotonic() - started:.0f} seconds in all."
    )
    return 0


def prove(proof: Proof) -> None:
    say("1. A base from debootstrap, and the images")
    own = build_images(proof)
    say("2. Secrets and writable paths of the images")
    check_images(proof, own)
    say("3. The services of docker/compose.yaml")
    with services(proof) as values:
        wait_until_healthy(proof)
        say(f"4. {proof.days} days of flights, run by Airflow's scheduler on the Spark cluster")
        run_flights(proof)
        say("5. Every view recomputed with Spark over the same files")
        compare(proof)
        say("6. The running containers")
        check_containers(proof)
        check_logs(proof, values)
    say("7. A day of the demo in the image alone")
    said = proof.run(
        "podman",
        "run",
        "--rm",
        "-v",
        "tussock:/opt/tussock/.tussock",
        "tussock",
        "python",
        "scripts/demo.py",
        "--days",
        "1",
    )
    verdict = re.search(r"^Every view is equal to Spark\..*$", said, re.M)
    if verdict is None:
        raise ProofError(said)
    proof.note("demo in the image", verdict[0])


# --- the machine ---


def ensure_tools() -> None:
    """Install the Debian packages that are missing. Raises ProofError if that fails, or without root."""
    installed = subprocess.run(
        ["dpkg-query", "-W", "-f", "${Package} ${db:Status-Status}\n"], capture_output=True, text=True
    ).stdout
    missing = [name for name in DEBIAN_PACKAGES if f"{name} installed" not in installed.splitlines()]
    if os.getuid() != 0:
        raise ProofError("Run this as root: it creates the base image and the containers' network.")
    if missing:
        print(f"installing {' '.join(missing)}", flush=True)
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        for command in (["update", "-qq"], ["install", "-y", "-qq", "--no-install-recommends", *missing]):
            done = subprocess.run(["apt-get", *command], env=environment, capture_output=True, text=True)
            if done.returncode:
                raise ProofError(f"apt-get {' '.join(command)}:\n{done.stdout[-1000:]}{done.stderr[-1000:]}")


@contextmanager
def working_folder(wanted: Path | None) -> Iterator[Path]:
    """The folder of all files of the run. A temporary folder is removed at the end."""
    if wanted is not None:
        wanted.mkdir(parents=True, exist_ok=True)
        yield wanted.resolve()
        return
    folder = Path(tempfile.mkdtemp(prefix="tussock-", dir="/var/tmp"))  # not /tmp, which may be in memory
    try:
        yield folder
    finally:
        unmount_below(folder)
        shutil.rmtree(folder)


def settings_of_podman(folder: Path) -> dict[str, str]:
    """The environment that makes podman, buildah and podman-compose use only the folder.

    runc is used because crun does not start if both versions of cgroups are mounted. The limits are set because podman
    requests more open files than some machines allow.
    """
    limits = {"nofile": (resource.RLIMIT_NOFILE, 65_536), "nproc": (resource.RLIMIT_NPROC, 16_384)}
    highest = {
        name: min(most, limit) if (limit := resource.getrlimit(number)[1]) >= 0 else most
        for name, (number, most) in limits.items()
    }
    ulimits = json.dumps([f"{name}={limit}:{limit}" for name, limit in highest.items()])
    (folder / "containers.conf").write_text(
        f"[containers]\ndefault_ulimits = {ulimits}\n"
        f'[network]\nnetwork_backend = "netavark"\nnetwork_config_dir = "{folder}/networks"\n'
        f'[engine]\nruntime = "runc"\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\ntmp_dir = "{folder}/tmp"\n'
    )
    (folder / "storage.conf").write_text(
        f'[storage]\ndriver = "overlay"\ngraphroot = "{folder}/storage"\nrunroot = "{folder}/run"\n'
    )
    return {
        **os.environ,
        "CONTAINERS_CONF": str(folder / "containers.conf"),
        "CONTAINERS_STORAGE_CONF": str(folder / "storage.conf"),
        "DISABLE_HC_SYSTEMD": "true",  # this script runs the healthchecks
    }


def mark_of(folder: Path) -> str:
    """The random mark among the build's secrets. A kept folder keeps the mark of its layers."""
    file = folder / "mark"
    if not file.exists():
        file.write_text(secrets.token_hex(16))
    return file.read_text()


def remove_containers(proof: Proof) -> None:
    """Remove containers, volumes and networks of a run. The images stay in the folder."""
    for command in ("podman rm -af -t 5", "podman volume rm -af", "podman network prune -f", "buildah rm -a"):
        subprocess.run(command.split(), env=proof.environment, capture_output=True, timeout=300)


def unmount_below(folder: Path) -> None:
    mounted = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    for place in reversed([place for place in mounted if Path(place).is_relative_to(folder)]):
        subprocess.run(["umount", "-l", place], check=False)


def debian_sources() -> list[tuple[str, str, str]]:
    """This machine's Debian mirrors: address, suite and component. Raises ProofError if apt has no Debian source."""
    command = [
        "apt-get",
        "indextargets",
        "--format",
        "$(ORIGIN)|$(REPO_URI)|$(CODENAME)|$(COMPONENT)",
        "Identifier: Packages",
    ]
    lines = subprocess.run(command, capture_output=True, text=True).stdout.splitlines()
    found = [
        (uri, suite, component)
        for origin, uri, suite, component in (line.split("|") for line in lines)
        if origin == "Debian"
    ]
    found = [place for place in dict.fromkeys(found) if place[1].split("-")[0] == SUITE]
    if not any(suite == SUITE for _, suite, _ in found):
        raise ProofError(f"apt has no source for Debian {SUITE}. Check the sources and run `apt-get update`.")
    return found


# --- 1: the images ---


def build_images(proof: Proof) -> list[str]:
    """Build the base and the images.

    Return the texts that no image may contain: the mark and this machine's mirrors.
    """
    sources = debian_sources()
    if proof.fails("podman", "image", "exists", BASE):
        make_base(proof, next(uri for uri, suite, _ in sources if suite == SUITE))
    secret_files = build_secrets(proof, sources)
    for image, target in IMAGES.items():
        started = time.monotonic()
        options = ["--isolation", "chroot", "--layers", "--build-arg", f"BASE={BASE}"]
        options += [option for name, file in secret_files.items() for option in ("--secret", f"id={name},src={file}")]
        options += ["--target", target] if target is not None else []
        proof.run("buildah", "bud", *options, "-f", "docker/Dockerfile", "-t", image, ".")
        size = int(proof.inspect("image", image)["Size"])
        proof.note(f"image {image}", f"{size / 1e6:,.0f} MB, built in {time.monotonic() - started:.0f} s")
    own_addresses = [uri for uri, _, _ in sources if "://deb.debian.org/" not in uri]
    own_addresses += [value for value in package_settings().values() if "://" in value or "@" in value]
    return [proof.mark, *own_addresses]


def make_base(proof: Proof, mirror: str) -> None:
    """Import a minimal Debian as the image BASE. It has no package sources, since builds receive those as secrets."""
    started = time.monotonic()
    tree = proof.folder / "base"
    proof.run("debootstrap", "--variant=minbase", SUITE, tree, mirror)
    (tree / "etc/apt/sources.list").unlink()
    for name in ("var/cache/apt", "var/lib/apt/lists", "var/log"):
        for path in (tree / name).rglob("*"):
            if path.is_file():
                path.unlink()
    proof.run("tar", "-C", tree, "-cf", proof.folder / "base.tar", ".")
    proof.run("podman", "import", proof.folder / "base.tar", BASE)
    shutil.rmtree(tree)
    (proof.folder / "base.tar").unlink()
    size = int(proof.inspect("image", BASE)["Size"])
    proof.note(
        "base", f"Debian {SUITE} by debootstrap, {size / 1e6:,.0f} MB, made in {time.monotonic() - started:.0f} s"
    )


def build_secrets(proof: Proof, sources: Sequence[tuple[str, str, str]]) -> dict[str, Path]:
    """Write the files of the build's secrets. Return them by their names in docker/Dockerfile."""
    apt = subprocess.run(["apt-config", "dump"], capture_output=True, text=True).stdout.splitlines()
    kept = [line for line in apt if re.match(r"Acquire::(Check|Retries|ForceIPv|https?::)", line)]
    settings = [f"{name}={shlex.quote(value)}" for name, value in package_settings().items()]
    texts = {
        "apt.conf": "\n".join(kept),
        "sources.list": "\n".join(f"deb {' '.join(place)}" for place in sources),
        "packages.env": "\n".join([*settings, f"PROOF_MARK={proof.mark}"]),
    }
    folder = proof.folder / "secrets"
    folder.mkdir(mode=0o700, exist_ok=True)
    for name, text in texts.items():
        (folder / name).write_text(text + "\n")
    certificates = Path(os.environ.get("SSL_CERT_FILE", "/etc/ssl/certs/ca-certificates.crt"))
    if certificates.exists():
        shutil.copy(certificates, folder / "ca.crt")
    return {file.name: file for file in sorted(folder.iterdir())}


def package_settings() -> dict[str, str]:
    """The settings for pip, uv and Go in this process's environment, and pip's settings in its files."""
    listed = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True).stdout
    of_files = {
        f"PIP_{name.upper().replace('-', '_')}": value
        for name, value in re.findall(r"^global\.([a-z-]+)='(.*)'$", listed, re.M)
    }
    found = {name: value for name, value in {**of_files, **os.environ}.items() if PACKAGE_SETTINGS.fullmatch(name)}
    if "PIP_INDEX_URL" in found:
        found.setdefault("UV_DEFAULT_INDEX", found["PIP_INDEX_URL"])
    return found


# --- 2: their content ---


def check_images(proof: Proof, own: Sequence[str]) -> None:
    """Check the users, secrets and writable paths of the images. Raises ProofError."""
    for image in IMAGES:
        config = proof.inspect("image", image)["Config"]
        if config["User"] != f"{UID}:{UID}":
            raise ProofError(f"{image} runs as {config['User']!r}")
        variables = [
            text
            for text in config.get("Env", [])
            if re.search(r"(?i)secret|password|token|access_key", text.split("=")[0])
        ]
        if variables:
            raise ProofError(f"{image} has {variables} in its configuration")
        look = "find / -xdev \\( -path /proc -o -path /sys -o -path /dev \\) -prune"
        look += " -o -writable ! -type l -print 2>/dev/null || true"
        paths = proof.run(
            "podman", "run", "--rm", "--network=none", "--entrypoint", "sh", image, "-c", look
        ).splitlines()
        wrong = [path for path in paths if not any(path == place or path.startswith(f"{place}/") for place in WRITABLE)]
        if wrong:
            raise ProofError(f"{image}: its user can write {wrong[:20]}")
        proof.note(f"image {image}", f"user {config['User']}; can write {', '.join(roots_of(paths))}")
    look = "find . ( -path ./.venv -o -name __pycache__ ) -prune -o -type f -print"
    files = {
        path[2:] for path in proof.run("podman", "run", "--rm", "--network=none", "tussock", *look.split()).splitlines()
    }
    if unknown := files - set(proof.run("git", "ls-files", "-co", "--exclude-standard").splitlines()):
        raise ProofError(f"The image contains files that git does not track or that it ignores: {sorted(unknown)[:20]}")
    proof.note("code", f"{len(files)} files, all known to git")
    with leaking_image(proof) as leaking:
        if not layers_with(proof, leaking, own):
            raise ProofError("The search for secrets did not find a secret that was planted in an image.")
    held = {image: found for image in IMAGES if (found := layers_with(proof, image, own))}
    if held:
        raise ProofError(f"Images contain build secrets: {held}")
    proof.note(
        "build secrets",
        f"{len(own)} searched in all layers and histories: none found; a secret planted in another image was found",
    )


def roots_of(paths: Sequence[str]) -> list[str]:
    """The paths that are not below another of the paths."""
    return [path for path in sorted(paths) if not any(path.startswith(f"{other}/") for other in paths)]


@contextmanager
def leaking_image(proof: Proof) -> Iterator[str]:
    """An image that contains a build secret, to test the search."""
    file = proof.folder / "Leaking"
    file.write_text(f"FROM {BASE}\nRUN --mount=type=secret,id=packages.env cp /run/secrets/packages.env /etc/leaked\n")
    secret = f"id=packages.env,src={proof.folder}/secrets/packages.env"
    proof.run(
        "buildah",
        "bud",
        "--isolation",
        "chroot",
        "--secret",
        secret,
        "-f",
        file,
        "-t",
        "leaking",
        proof.folder / "secrets",
    )
    try:
        yield "leaking"
    finally:
        proof.run("podman", "rmi", "leaking")


def layers_with(proof: Proof, image: str, texts: Sequence[str]) -> list[str]:
    """The places in an image that contain one of the texts: files of all layers, and its configuration or history."""
    needles = proof.folder / "secrets" / "needles"
    needles.write_text("\n".join(texts) + "\n")
    known = json.loads((proof.folder / "storage/overlay-layers/layers.json").read_text())
    folder_of = {layer["diff-digest"]: layer["id"] for layer in known}
    found = proof.inspect("image", image)
    layers = [proof.folder / "storage/overlay" / folder_of[digest] / "diff" for digest in found["RootFS"]["Layers"]]
    search = ["grep", "-rlaF", "-f", str(needles), *map(str, layers)]
    files = subprocess.run(search, capture_output=True, text=True).stdout.splitlines()
    needles.unlink()
    told = json.dumps([found, proof.run("podman", "history", "--no-trunc", image)])
    return [*files, *(["configuration or history"] if any(text in told for text in texts) else [])]


# --- 3: the services ---


@contextmanager
def services(proof: Proof) -> Iterator[Mapping[str, str]]:
    """Run the services of docker/compose.yaml; yield their secrets. Stops them and removes their volumes at the end."""
    file = proof.folder / "compose.env"
    file.unlink(missing_ok=True)
    proof.run(ROOT / "docker/secrets.sh", file)
    if file.stat().st_mode & 0o777 != 0o600:
        raise ProofError(f"Other users can read {file}.")
    values = dict(line.split("=", 1) for line in file.read_text().splitlines())
    python = proof.folder / "compose"
    proof.run(sys.executable, "-m", "venv", python)
    proof.run(python / "bin/pip", "install", "--quiet", "--disable-pip-version-check", PODMAN_COMPOSE)
    airflow, spark = free_port(), free_port()
    proof.environment |= {"AIRFLOW_PORT": str(airflow), "SPARK_PORT": str(spark)}

    def compose(*arguments: str) -> str:
        return proof.run(python / "bin/podman-compose", "--env-file", file, "-p", PROJECT, "-f", COMPOSE, *arguments)

    try:
        compose("up", "-d", "--no-build")
        yield values
    except ProofError as err:
        raise ProofError(f"{err}\n\n{last_lines(proof)}") from err
    finally:
        compose("down", "-v", "-t", "30")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def containers(proof: Proof, service: str | None = None) -> list[str]:
    """The names of compose's containers, of all services or of one."""
    label = [] if service is None else ["--filter", f"label=com.docker.compose.service={service}"]
    return sorted(proof.run("podman", "ps", "-a", "--format", "{{.Names}}", *label).split())


def last_lines(proof: Proof) -> str:
    """The last lines of each container's log."""
    said = []
    for name in containers(proof):
        done = subprocess.run(
            ["podman", "logs", "--tail", "25", name], env=proof.environment, capture_output=True, text=True
        )
        said.append(f"--- {name}\n{done.stdout}{done.stderr}")
    return "\n".join(said)


def wait_until_healthy(proof: Proof) -> None:
    """Wait until the healthcheck of each service in compose.yaml passes. Raises ProofError."""
    started = time.monotonic()
    waiting = containers(proof)
    number = len(waiting)
    while waiting:
        waiting = [name for name in waiting if proof.fails("podman", "healthcheck", "run", name)]
        if time.monotonic() > started + START_TIMEOUT_S:
            raise ProofError(f"{', '.join(waiting)}: not healthy after {START_TIMEOUT_S:.0f} s")
        time.sleep(2)
    proof.note(
        "services",
        f"{number} containers healthy after {time.monotonic() - started:.0f} s: {', '.join(containers(proof))}",
    )


# --- 4 and 5: the flights ---


def in_airflow(proof: Proof, *command: str) -> str:
    (name,) = containers(proof, "airflow")
    return proof.run("podman", "exec", name, *command)


def log_in(proof: Proof) -> Callable[[str], dict[str, Any]]:
    """Return a function that sends requests to Airflow's API as the user whose password is in the volume."""
    address = f"http://127.0.0.1:{proof.environment['AIRFLOW_PORT']}"
    ((user, password),) = json.loads(in_airflow(proof, "cat", ".airflow/passwords.json")).items()

    def asked(path: str, body: Mapping[str, str] | None = None, **headers: str) -> dict[str, Any]:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(address + path, data, {"Content-Type": "application/json", **headers})
        with urllib.request.urlopen(request, timeout=60) as answer:
            return dict(json.load(answer))

    token = asked("/auth/token", {"username": user, "password": password})["access_token"]
    return lambda path: asked(path, Authorization=f"Bearer {token}")


def run_flights(proof: Proof) -> None:
    """Run the commands of docs/containers.md, then wait for the scheduler's runs of the first days."""
    print(
        in_airflow(proof, "python", "pipelines/flights/load.py", "--out", "/data/flights", "--days", str(proof.days)),
        end="",
    )
    print(in_airflow(proof, "tussock", "apply", "flights"), end="", flush=True)
    started = time.monotonic()
    in_airflow(proof, "scripts/airflow.sh", "dags", "unpause", "epoch_flights")
    airflow = log_in(proof)
    while True:
        listed = airflow(f"/api/v2/dags/epoch_flights/dagRuns?order_by=run_after&limit={proof.days}")["dag_runs"]
        states = {run["dag_run_id"]: run["state"] for run in listed}
        first = list(states.values())
        if "failed" in first:
            raise ProofError(f"runs of epoch_flights: {states}")
        if first == ["success"] * proof.days:
            break
        if time.monotonic() > started + RUNS_TIMEOUT_S:
            raise ProofError(f"runs of epoch_flights after {RUNS_TIMEOUT_S:.0f} s: {states}")
        time.sleep(5)
    seconds = time.monotonic() - started
    in_airflow(proof, "scripts/airflow.sh", "dags", "pause", "epoch_flights")
    with urllib.request.urlopen(f"http://127.0.0.1:{proof.environment['SPARK_PORT']}/json/", timeout=10) as answer:
        spark = json.load(answer)
    workers = [worker for worker in spark["workers"] if worker["state"] == "ALIVE"]
    jobs = [app for app in spark["completedapps"] if app["state"] == "FINISHED"]
    if len(workers) != 2 or len(jobs) < proof.days:
        raise ProofError(f"The Spark master has {len(workers)} workers and {len(jobs)} finished applications.")
    (s3,) = containers(proof, "s3")
    sizes = [
        int(size)
        for size in proof.run(
            "podman", "exec", s3, "find", "/data/objects/tussock", "-type", "f", "-printf", "%s\n"
        ).split()
    ]
    proof.note(
        "epochs",
        f"{proof.days} runs of epoch_flights succeeded in {seconds:.0f} s; "
        f"{len(jobs)} Spark jobs finished on {len(workers)} workers",
    )
    proof.note("bucket", f"versitygw has {len(sizes)} objects, {sum(sizes) / 1e6:.1f} MB")


def compare(proof: Proof) -> None:
    """Compare the store and the Delta tables with Spark. Raises ProofError unless all views are equal."""
    said = in_airflow(proof, "python", "scripts/demo.py", "--compare", "--days", str(proof.days))
    print(said, end="")
    equal = re.findall(r"^(\w+): ([\d,]+) rows, equal to Spark$", said, re.M)
    if "Every view is equal to Spark." not in said or not equal or all(int(rows) == 0 for _, rows in equal):
        raise ProofError(said)
    proof.note("views", "; ".join(f"{view} {rows} rows" for view, rows in equal) + ": all equal to Spark")
    read = in_airflow(proof, "tussock", "read", "--pipeline", "flights", "worst_routes", "--csv").splitlines()
    if f"worst_routes: {len(read) - 1} rows, equal to Spark" not in said:
        raise ProofError(f"`tussock read` returned {len(read) - 1} rows of worst_routes, unlike the comparison.")
    proof.note("tussock read", f"worst_routes has {len(read) - 1} rows; the first is {read[1]}")


# --- 6: the containers ---


def check_containers(proof: Proof) -> None:
    """Check each container's processes and writable paths. Raises ProofError."""
    for name in containers(proof):
        status = dict(
            line.split(":", 1) for line in proof.run("podman", "exec", name, "cat", "/proc/1/status").splitlines()
        )
        process = {key: status[key].split() for key in ("Uid", "Gid", "CapEff", "CapBnd", "NoNewPrivs")}
        none = ["0" * 16]
        if process != {
            "Uid": [str(UID)] * 4,
            "Gid": [str(UID)] * 4,
            "CapEff": none,
            "CapBnd": none,
            "NoNewPrivs": ["1"],
        }:
            raise ProofError(f"{name}: {process}")
        users = set(proof.run("podman", "top", name, "user").split()[1:])
        if users & {"root", "0"}:
            raise ProofError(f"{name}: processes of {users}")
        for user in (str(UID), "0"):  # also root, without capabilities
            for path in ("/usr/local/bin/planted", "/opt/planted", "/etc/planted", "/home/tussock/planted"):
                if not proof.fails("podman", "exec", "--user", user, name, "touch", path):
                    raise ProofError(f"{name}: user {user} can write {path}")
        if name in containers(proof, "airflow"):
            for path in (
                "/opt/tussock/jobs/cli.py",
                "/opt/tussock/pipelines/flights/views.sql",
                "/opt/tussock/.venv/bin/tussock",
            ):
                if not proof.fails("podman", "exec", name, "sh", "-c", f"echo >> {path}"):
                    raise ProofError(f"{name}: {path} can be written")
    proof.note(
        "processes",
        f"all run as user {UID}, without capabilities or new privileges; not even root can write to an image",
    )
    ports = [line for name in containers(proof) for line in proof.run("podman", "port", name).splitlines()]
    if len(ports) != 2 or not all(re.search(r"-> 127\.0\.0\.1:\d+$", line) for line in ports):
        raise ProofError(f"Published ports: {ports}; expected two on 127.0.0.1.")
    proof.note("ports", ", ".join(ports))


def check_logs(proof: Proof, values: Mapping[str, str]) -> None:
    """Check that container logs, Airflow's logs and Spark's page contain no secret. Raises ProofError."""
    files = in_airflow(proof, "find", ".airflow", "-type", "f").split()
    (passwords,) = [path for path in files if path.endswith("/passwords.json")]
    secret_of = {**values, "password": json.loads(in_airflow(proof, "cat", passwords))["admin"]}
    texts = {name: proof.run("sh", "-c", f"podman logs {shlex.quote(name)} 2>&1") for name in containers(proof)}
    texts |= {path: in_airflow(proof, "cat", path) for path in files if path.endswith(".log")}
    with urllib.request.urlopen(f"http://127.0.0.1:{proof.environment['SPARK_PORT']}/", timeout=10) as answer:
        texts["Spark's page"] = answer.read().decode()
    found = [(where, name) for where, text in texts.items() for name, value in secret_of.items() if value in text]
    if found:
        raise ProofError(f"Logs contain secrets: {found}")
    length = sum(map(len, texts.values()))
    proof.note("logs", f"{len(texts)} searched, {length / 1e6:.1f} MB: none of {len(secret_of)} secrets found")


def say(text: str) -> None:
    print(f"\n{text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
