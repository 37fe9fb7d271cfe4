"""Environments of a pipeline: tables `[env.<name>]` of pipeline.toml that change some of its settings.

    store = ".tussock/shop/store"          # without an environment
    [env.prod]
    store = "s3://lake/shop"               # with --env prod or TUSSOCK_ENV=prod
    schedule.cron = "@hourly"              # [schedule] keeps its other keys

A table of an environment merges with the table of the same name, key by key. An entry of `[[publish]]` has the name in
its `name` or `kind`: a table of this name changes the entry, or adds it. All other values replace earlier ones.
Every environment is checked when the file is read, so an error in `[env.prod]` is visible during development.
"""

import os
from collections.abc import Mapping
from typing import Any

from tussock.jobs.settings.publishing import entry_title
from tussock.statestore.errors import InputError, did_you_mean

VARIABLE = "TUSSOCK_ENV"
SAME_EVERYWHERE = ("name", "env")
"""Keys of the top level that an environment cannot change."""


class UnknownEnvironmentError(InputError, hides_row_values=True):
    """The chosen environment is not in the pipeline's file."""

    file: str
    name: str
    known: tuple[str, ...]
    option: bool

    def __str__(self) -> str:
        chosen = f"--env {self.name}" if self.option else f"{VARIABLE}={self.name}"
        if not self.known:
            return f"{chosen}: {self.file} defines no environment. Omit --env, or add a table [env.{self.name}]."
        return (
            f"{chosen}: {self.file} defines no environment {self.name!r}, but {', '.join(self.known)}."
            f"{did_you_mean(self.name, self.known)} To define it, add a table [env.{self.name}]; it may be empty."
        )


def chosen_environment(file: str, known: tuple[str, ...], asked: str | None) -> str:
    """Return the name of the chosen environment; empty for none.

    Args:
        known: the environments of `file`.
        asked: the name in the option --env; None: use TUSSOCK_ENV. A pipeline without environments ignores the
            variable, which Airflow's processes set for all pipelines.

    Raises: UnknownEnvironmentError.
    """
    name = asked or os.environ.get(VARIABLE) or ""
    if not name or name in known or (not known and asked is None):
        return name if name in known else ""
    raise UnknownEnvironmentError(file, name, known, option=asked is not None)


def overlay_settings(settings: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return `settings` with the values of an environment. Tables merge key by key; all other values are replaced."""
    merged = dict(settings)
    for key, value in changes.items():
        before = merged.get(key)
        if isinstance(before, list) and isinstance(value, dict):
            merged[key] = _overlay_entries(before, value)
        else:
            merged[key] = (
                overlay_settings(before, value) if isinstance(before, dict) and isinstance(value, dict) else value
            )
    return merged


def _overlay_entries(entries: list[Any], changes: Mapping[str, Any]) -> list[Any]:
    """Return the entries of a list of tables with the changes of an environment, which adds entries of other names."""
    titles = [entry_title(entry) for entry in entries]
    merged = [
        overlay_settings(entry, changes[title]) if isinstance(changes.get(title), dict) else entry
        for title, entry in zip(titles, entries, strict=True)
    ]
    added = ((name, value) for name, value in changes.items() if name not in titles)
    return merged + [{"name": name} | value if isinstance(value, dict) else value for name, value in added]


def has_key(table: object, path: str) -> bool:
    """Whether a table of the file contains the key `path`, such as `epoch.units`. Keys may contain dots."""
    if not isinstance(table, dict):
        return False
    return any(
        path == key or (path.startswith(f"{key}.") and has_key(table[key], path[len(key) + 1 :])) for key in table
    )
