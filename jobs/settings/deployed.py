"""The suites and sinks of the files that a store was last deployed from, for the plan of a merge.

The object `runs/deployed.json` of a store that is no branch. Sinks take effect with pipeline.toml, without a
deployment. So the record shows the sinks of the last one.
"""

import logging
from typing import NamedTuple

import msgspec

from tussock.statestore.decoding import decode_json
from tussock.statestore.errors import TussockError
from tussock.statestore.meta.names import hash_of
from tussock.statestore.objectstore.base import ObjectNotFoundError, ObjectStore

log = logging.getLogger(__name__)
_NAME = "runs/deployed.json"


class DeployedFiles(msgspec.Struct, frozen=True):
    """Suites and assertions by file name, and sinks by name, each with a digest of its text or settings."""

    suites: dict[str, str]
    sinks: dict[str, str]

    @property
    def digest(self) -> str:
        """Files with equal suites and sinks have equal digests."""
        return hash_of(msgspec.json.encode((sorted(self.suites.items()), sorted(self.sinks.items()))))


class FileChange(NamedTuple):
    """A suite or sink that a merge brings (`+`), changes (`~`) or removes (`-`)."""

    sign: str
    kind: str
    name: str


def changes_between(before: DeployedFiles, after: DeployedFiles) -> tuple[FileChange, ...]:
    """The suites and sinks that differ, suites first, by name."""
    return (*_differing("suite", before.suites, after.suites), *_differing("sink", before.sinks, after.sinks))


def _differing(kind: str, before: dict[str, str], after: dict[str, str]) -> list[FileChange]:
    signs = {name: "-" if name not in after else "~" if name in before else "+" for name in {*before, *after}}
    return [FileChange(signs[n], kind, n) for n in sorted(signs) if before.get(n) != after.get(n)]


def read_deployed(objects: ObjectStore) -> DeployedFiles | None:
    """The record; None if there is none, or if it cannot be read. Cost: one GET."""
    try:
        return decode_json(objects.get(_NAME), DeployedFiles)
    except ObjectNotFoundError:
        return None
    except (TussockError, msgspec.DecodeError) as err:
        log.warning("could not read the suites and sinks of the last deployment: %s", err)
        return None


def record_deployed(objects: ObjectStore, deployed: DeployedFiles) -> None:
    """Record the suites and sinks of a deployment. An error is logged, because the deployment is done.

    Cost: one GET; one PUT if they differ from the recorded ones.
    """
    if read_deployed(objects) == deployed:
        return
    try:
        objects.put(_NAME, msgspec.json.encode(deployed))
    except TussockError as err:
        log.warning("could not record the suites and sinks of the deployment: %s", err)
