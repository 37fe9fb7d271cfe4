"""Proof of docker/: builds the images without an image registry, runs docker/compose.yaml with them and the flights in it, and looks.

    python3 scripts/containers.py                    everything, then removes what it made
    python3 scripts/containers.py --folder FOLDER    keeps the images there; a second run builds only what has changed

1. Makes a base with debootstrap, from where this machine has Debian's packages from, and builds the three images from it with buildah. This
   machine's settings for packages come as build secrets, among them a mark that no image may hold.
2. Searches the images for the mark and for settings of this machine, and for paths that their user can write.
3. Makes secrets up, as `make secrets` does, and starts compose's services with podman: in containers, each with its user, capabilities and
   read-only root, on a network of their own, with versitygw as the bucket.
4. Loads days of flights, applies the pipeline, unpauses its DAG, and waits for Airflow's scheduler to run them on the Spark cluster.
5. Computes every view again with Spark over the same files, and compares.
6. Looks at the running containers: users, capabilities, what can be written, ports, and whether a log holds a secret.
7. Runs a day of `make demo` in the image alone, which has a local Spark.

Needs root, Debian's mirror, PyPI and a Go proxy, and 15 GB of disk in FOLDER or /var/tmp. Storage and settings of podman are its own.
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
"""Each image, and its target in docker/Dockerfile."""
UID = 10001
PROJECT = "tussock-proof"
PODMAN_COMPOSE = "podman-compose==1.6.0"  # Debian's is older than conditions of depends_on
DEBIAN_PACKAGES = ("aardvark-dns", "buildah", "debootstrap", "iptables", "netavark", "podman", "python3-venv", "runc")
WRITABLE = ("/tmp", "/var/tmp", "/run/lock", "/home/tussock", "/data", "/opt/tussock/.airflow", "/opt/tussock/.tussock")
"""What an image's user may write where the root is not read-only: these paths and what is below them."""
PACKAGE_SETTINGS = re.compile(
    r"(PIP|UV)_((EXTRA_)?INDEX_URL|(DEFAULT_)?INDEX|TRUSTED_HOST|INSECURE_HOST|DEFAULT_TIMEOUT|HTTP_TIMEOUT|RETRIES)"
    r"|GO(PROXY|SUMDB|NOSUMDB|PRIVATE|NOPROXY|INSECURE)|(HTTPS?|NO)_PROXY|(https?|no)_proxy"
)
START_TIMEOUT_S = 300.0
RUNS_TIMEOUT_S = 1200.0


class ProofError(Exception):
    """Something is not as docs/containers.md says, or a step failed; the message says what."""


@dataclass
class Proof:
    """One run, in a folder of its own.

    Args:
        environment: of podman, buildah and podman-compose: their storage and settings are in the folder.
        mark: a random text that is among the build's secrets.
        seen: what was found, for the summary; a subject and a finding each.
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
        """A command's output. Raises ProofError with the end of what it said where it fails; `more`: variables."""
        texts = [str(part) for part in command]
        with tempfile.TemporaryFile("w+") as said:  # no pipe: what podman starts may keep one open
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
        description="Build the images without a registry, run compose's services and the flights in them."
    )
    parser.add_argument("--days", type=int, default=3, help="how many days of flights to run (default: %(default)s)")
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
    print("\nWhat was seen")
    for subject, finding in proof.seen:
        print(f"  {subject:<24}{finding}")
    print(
        f"\nThe images and docker/compose.yaml do what docs/containers.md says. {time.monotonic() - started:.0f} seconds in all."
    )
    return 0


def prove(proof: Proof) -> None:
    say("1. A base by debootstrap, and the images from it")
    own = build_images(proof)
    say("2. What the images hold, and what their user can write")
    check_images(proof, own)
    say("3. The services of docker/compose.yaml")
    with services(proof) as values:
        wait_until_healthy(proof)
        say(f"4. {proof.days} days of flights, by Airflow's scheduler on the Spark cluster")
        run_flights(proof)
        say("5. Every view again, with Spark over the same files")
        compare(proof)
        say("6. The running containers")
        check_containers(proof)
        check_logs(proof, values)
    say("7. The image alone: a day of the demo")
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


# --- the machine -----------------------------------------------------------------------------------------------------------------


def ensure_tools() -> None:
    """Debian's packages that this needs, installed where they are missing. Raises ProofError where they can't be."""
    installed = subprocess.run(
        ["dpkg-query", "-W", "-f", "${Package} ${db:Status-Status}\n"], capture_output=True, text=True
    ).stdout
    missing = [name for name in DEBIAN_PACKAGES if f"{name} installed" not in installed.splitlines()]
    if os.getuid() != 0:
        raise ProofError("root makes the base and the containers' network here; run this as root")
    if missing:
        print(f"installing {' '.join(missing)}", flush=True)
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        for command in (["update", "-qq"], ["install", "-y", "-qq", "--no-install-recommends", *missing]):
            done = subprocess.run(["apt-get", *command], env=environment, capture_output=True, text=True)
            if done.returncode:
                raise ProofError(f"apt-get {' '.join(command)}:\n{done.stdout[-1000:]}{done.stderr[-1000:]}")


@contextmanager
def working_folder(wanted: Path | None) -> Iterator[Path]:
    """The folder of all that this makes; one that nobody named is removed."""
    if wanted is not None:
        wanted.mkdir(parents=True, exist_ok=True)
        yield wanted.resolve()
        return
    folder = Path(tempfile.mkdtemp(prefix="tussock-", dir="/var/tmp"))  # not /tmp, which may be memory
    try:
        yield folder
    finally:
        unmount_below(folder)
        shutil.rmtree(folder)


def settings_of_podman(folder: Path) -> dict[str, str]:
    """The environment with which podman, buildah and podman-compose keep to the folder.

    runc: crun refuses machines with both versions of cgroups mounted. Limits: podman asks for more open files than some machines allow.
    """
    limits = {"nofile": (resource.RLIMIT_NOFILE, 65_536), "nproc": (resource.RLIMIT_NPROC, 16_384)}
    highest = {
        name: min(most, limit) if (limit := resource.getrlimit(number)[1]) >= 0 else most
        for name, (number, most) in limits.items()
    }
    (folder / "containers.conf").write_text(
        f"[containers]\ndefault_ulimits = {json.dumps([f'{name}={limit}:{limit}' for name, limit in highest.items()])}\n"
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
        "DISABLE_HC_SYSTEMD": "true",  # healthchecks are run from here
    }


def mark_of(folder: Path) -> str:
    """The random text that is among the build's secrets: the one of the layers that are in the folder already, if there are any."""
    file = folder / "mark"
    if not file.exists():
        file.write_text(secrets.token_hex(16))
    return file.read_text()


def remove_containers(proof: Proof) -> None:
    """Containers, volumes and networks that a run left. The images stay: the folder goes with them, or is kept."""
    for command in ("podman rm -af -t 5", "podman volume rm -af", "podman network prune -f", "buildah rm -a"):
        subprocess.run(command.split(), env=proof.environment, capture_output=True, timeout=300)


def unmount_below(folder: Path) -> None:
    mounted = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    for place in reversed([place for place in mounted if Path(place).is_relative_to(folder)]):
        subprocess.run(["umount", "-l", place], check=False)


def debian_sources() -> list[tuple[str, str, str]]:
    """Where this machine has Debian's packages from: address, suite and component. Raises ProofError where apt names nothing of Debian."""
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
        raise ProofError(f"apt's sources name no {SUITE} of Debian (after `apt-get update`)")
    return found


# --- 1: the images ---------------------------------------------------------------------------------------------------------------


def build_images(proof: Proof) -> list[str]:
    """Build the base and the images; texts that no image may hold: the mark, and this machine's own addresses for packages."""
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
    """Import Debian's smallest system as the image BASE. It has no sources of packages: those of the build are secrets."""
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
    """The files of the build's secrets, by the names that docker/Dockerfile gives them."""
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
    """This process's settings for pip, uv and Go, and pip's own from its files."""
    listed = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True).stdout
    of_files = {
        f"PIP_{name.upper().replace('-', '_')}": value
        for name, value in re.findall(r"^global\.([a-z-]+)='(.*)'$", listed, re.M)
    }
    found = {name: value for name, value in {**of_files, **os.environ}.items() if PACKAGE_SETTINGS.fullmatch(name)}
    if "PIP_INDEX_URL" in found:
        found.setdefault("UV_DEFAULT_INDEX", found["PIP_INDEX_URL"])
    return found


# --- 2: what they hold -----------------------------------------------------------------------------------------------------------


def check_images(proof: Proof, own: Sequence[str]) -> None:
    """Users, secrets and writable paths of the images. Raises ProofError."""
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
        look = "find / -xdev \\( -path /proc -o -path /sys -o -path /dev \\) -prune -o -writable ! -type l -print 2>/dev/null || true"
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
        raise ProofError(
            f"the image holds files of the checkout that git does not know or ignores: {sorted(unknown)[:20]}"
        )
    proof.note("code", f"{len(files)} files, each known to git")
    with leaking_image(proof) as leaking:
        if not layers_with(proof, leaking, own):
            raise ProofError("the search for secrets misses one that was put into an image for it to find")
    held = {image: found for image in IMAGES if (found := layers_with(proof, image, own))}
    if held:
        raise ProofError(f"build secrets are in images: {held}")
    proof.note(
        "build secrets",
        f"{len(own)} searched in the files of all layers and in histories: none there, and one planted elsewhere was found",
    )


def roots_of(paths: Sequence[str]) -> list[str]:
    """The paths below which the others are."""
    return [path for path in sorted(paths) if not any(path.startswith(f"{other}/") for other in paths)]


@contextmanager
def leaking_image(proof: Proof) -> Iterator[str]:
    """An image that keeps a build secret, as none should."""
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
    """Files of an image's layers, also of those that a later layer hides, and its configuration where it holds one of the texts."""
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


# --- 3: the services -------------------------------------------------------------------------------------------------------------


@contextmanager
def services(proof: Proof) -> Iterator[Mapping[str, str]]:
    """The services of docker/compose.yaml run; the secrets that they run with. Stopped at the end, their volumes removed."""
    file = proof.folder / "compose.env"
    file.unlink(missing_ok=True)
    proof.run(ROOT / "docker/secrets.sh", file)
    if file.stat().st_mode & 0o777 != 0o600:
        raise ProofError(f"{file} is readable by others")
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
    """The names of compose's containers, all or one service's."""
    label = [] if service is None else ["--filter", f"label=com.docker.compose.service={service}"]
    return sorted(proof.run("podman", "ps", "-a", "--format", "{{.Names}}", *label).split())


def last_lines(proof: Proof) -> str:
    """What each container said last."""
    said = []
    for name in containers(proof):
        done = subprocess.run(
            ["podman", "logs", "--tail", "25", name], env=proof.environment, capture_output=True, text=True
        )
        said.append(f"--- {name}\n{done.stdout}{done.stderr}")
    return "\n".join(said)


def wait_until_healthy(proof: Proof) -> None:
    """Until each service's healthcheck, as compose has it, passes. Raises ProofError."""
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


# --- 4 and 5: the flights --------------------------------------------------------------------------------------------------------


def in_airflow(proof: Proof, *command: str) -> str:
    (name,) = containers(proof, "airflow")
    return proof.run("podman", "exec", name, *command)


def log_in(proof: Proof) -> Callable[[str], dict[str, Any]]:
    """What asks Airflow's API, from this machine, as the user whose password is in the volume."""
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
    """The commands of docs/containers.md, then the runs that Airflow's scheduler makes of the first days."""
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
        raise ProofError(f"the master has {len(workers)} workers and {len(jobs)} applications that finished")
    (s3,) = containers(proof, "s3")
    sizes = [
        int(size)
        for size in proof.run(
            "podman", "exec", s3, "find", "/data/objects/tussock", "-type", "f", "-printf", "%s\n"
        ).split()
    ]
    proof.note(
        "epochs",
        f"{proof.days} runs of epoch_flights succeeded in {seconds:.0f} s; the master finished {len(jobs)} jobs on {len(workers)} workers",
    )
    proof.note("bucket", f"versitygw holds {len(sizes)} objects, {sum(sizes) / 1e6:.1f} MB")


def compare(proof: Proof) -> None:
    """What the store and the Delta tables hold, against Spark. Raises ProofError where the command does not say that all is equal."""
    said = in_airflow(proof, "python", "scripts/demo.py", "--compare", "--days", str(proof.days))
    print(said, end="")
    equal = re.findall(r"^(\w+): ([\d,]+) rows, equal to Spark$", said, re.M)
    if "Every view is equal to Spark." not in said or not equal or all(int(rows) == 0 for _, rows in equal):
        raise ProofError(said)
    proof.note("views", "; ".join(f"{view} {rows} rows" for view, rows in equal) + ": all equal to Spark")
    read = in_airflow(proof, "tussock", "read", "--pipeline", "flights", "worst_routes", "--csv").splitlines()
    if f"worst_routes: {len(read) - 1} rows, equal to Spark" not in said:
        raise ProofError(f"tussock read has {len(read) - 1} rows of worst_routes")
    proof.note("tussock read", f"worst_routes has {len(read) - 1} rows; the first: {read[1]}")


# --- 6: the containers -----------------------------------------------------------------------------------------------------------


def check_containers(proof: Proof) -> None:
    """Each container's processes, and what they can write. Raises ProofError."""
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
        for user in (str(UID), "0"):  # root, too, but with no capability
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
        f"all of user {UID}, no capability, no new privileges; no path of an image can be written, not by root either",
    )
    ports = [line for name in containers(proof) for line in proof.run("podman", "port", name).splitlines()]
    if len(ports) != 2 or not all(re.search(r"-> 127\.0\.0\.1:\d+$", line) for line in ports):
        raise ProofError(f"published: {ports}")
    proof.note("ports", ", ".join(ports))


def check_logs(proof: Proof, values: Mapping[str, str]) -> None:
    """Neither what the containers say, nor Airflow's logs, nor Spark's page hold a secret. Raises ProofError."""
    files = in_airflow(proof, "find", ".airflow", "-type", "f").split()
    (passwords,) = [path for path in files if path.endswith("/passwords.json")]
    secret_of = {**values, "password": json.loads(in_airflow(proof, "cat", passwords))["admin"]}
    texts = {name: proof.run("sh", "-c", f"podman logs {shlex.quote(name)} 2>&1") for name in containers(proof)}
    texts |= {path: in_airflow(proof, "cat", path) for path in files if path.endswith(".log")}
    with urllib.request.urlopen(f"http://127.0.0.1:{proof.environment['SPARK_PORT']}/", timeout=10) as answer:
        texts["Spark's page"] = answer.read().decode()
    found = [(where, name) for where, text in texts.items() for name, value in secret_of.items() if value in text]
    if found:
        raise ProofError(f"secrets are in {found}")
    length = sum(map(len, texts.values()))
    proof.note("logs", f"{len(texts)} of them, {length / 1e6:.1f} MB: none of {len(secret_of)} secrets")


def say(text: str) -> None:
    print(f"\n{text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
