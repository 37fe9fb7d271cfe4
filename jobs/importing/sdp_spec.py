"""spark-pipeline.yml: the name, the defaults and the files of a declarative pipeline.

name: shop
storage: file:///shop/checkpoints   # state of Spark's streams, which a pipeline of this project does not have
catalog: main                       # of names without a catalog
database: sales                     # of names without a schema; also `schema`
configuration: {region: eu}         # settings, also for ${region} in SQL
libraries:
  - glob: {include: transformations/**}
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

from tussock.jobs.importing.errors import ProjectError
from tussock.jobs.importing.sdp_words import ZONE_SETTING
from tussock.jobs.settings.user_files import text_of
from tussock.statestore.extras import extras_named

SPEC_NAMES = ("spark-pipeline.yml", "spark-pipeline.yaml")
_KEYS = ("name", "storage", "catalog", "database", "schema", "configuration", "libraries")
_ENDINGS = (".sql", ".py")
_DEFAULTS = {"spark.sql.ansi.enabled": "true", "spark.sql.casesensitive": "false"}
#: Settings of Spark SQL on which no row depends: speed, files, catalogs.
_WITHOUT_EFFECT = re.compile(
    r"spark\.sql\.(adaptive|artifact|auto|broadcast|catalog|cbo|codegen|connect|debug|default|event|execution|"
    r"extensions|files|hive|inMemory|join|maven|optimizer|pipelines|redaction|shuffle|sources\.partition|statistics|"
    r"streaming|ui|warehouse)\w*(\..*)?",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class SdpSpec:
    """The settings of a declarative pipeline.

    Args:
        root: the folder of the file.
        files: the SQL and Python files of its libraries, in the order in which Spark reads them.
        inputs: the file itself, `files`, and the folders in which a new file would belong to `files`.
    """

    name: str
    root: Path
    catalog: str | None
    schema: str | None
    configuration: Mapping[str, str]
    files: tuple[Path, ...]
    inputs: tuple[Path, ...]


def read_spec(path: Path) -> SdpSpec:
    """Read a spark-pipeline.yml. A folder means the file in it, or, without one, all its SQL and Python files.

    Raises: ProjectError with the place; UserFileError.
    """
    if path.is_dir():
        specs = [path / name for name in SPEC_NAMES if (path / name).is_file()]
        if len(specs) > 1:
            raise ProjectError(str(path), " and ".join(SPEC_NAMES), "one of them: give its path, or remove the other")
        if not specs:
            root = path.resolve()
            files = _files_of(root, "**/*")
            if not files:
                raise ProjectError(str(path), "no SQL or Python file", "a spark-pipeline.yml, or a folder with one")
            return SdpSpec(root.name, root, None, None, {}, files, (*files, *_folders_of(root, "**/*")))
        path = specs[0]
    return _spec_of(path.resolve(), _read_yaml(path))


def _read_yaml(path: Path) -> dict[str, object]:
    with extras_named():
        import yaml
    try:
        document = yaml.safe_load(text_of(path))
    except yaml.YAMLError as err:
        raise ProjectError(str(path), " ".join(str(err).split()), "YAML") from err
    if not isinstance(document, dict):
        raise ProjectError(str(path), type(document).__name__, f"the keys {', '.join(_KEYS)}")
    return document


def _spec_of(path: Path, document: Mapping[str, object]) -> SdpSpec:
    for key in document:
        if key not in _KEYS:
            raise ProjectError(str(path), f"the key {key!r}", f"one of {', '.join(_KEYS)}")
    name = document.get("name")
    if not isinstance(name, str):
        raise ProjectError(str(path), "no name", "`name: shop`, the name of the pipeline")
    configuration = document.get("configuration") or {}
    if not isinstance(configuration, dict):
        raise ProjectError(str(path), f"configuration {configuration!r}", "keys with texts")
    patterns = _patterns_of(path, document)
    files = tuple(dict.fromkeys(file for pattern in patterns for file in _files_of(path.parent, pattern)))
    folders = dict.fromkeys(folder for pattern in patterns for folder in _folders_of(path.parent, pattern))
    if not files:
        raise ProjectError(
            str(path), "no SQL or Python file in `libraries`", "`libraries: [{glob: {include: transformations/**}}]`"
        )
    return SdpSpec(
        name,
        path.parent,
        _text_in(document, "catalog"),
        _text_in(document, "database") or _text_in(document, "schema"),
        {str(key): str(value) for key, value in configuration.items()},
        files,
        (path, *files, *folders),
    )


def _patterns_of(path: Path, document: Mapping[str, object]) -> list[str]:
    libraries = document.get("libraries") or []
    patterns = list[str]()
    for library in libraries if isinstance(libraries, list) else [libraries]:
        entry = library.get("glob") if isinstance(library, dict) else None
        include = entry.get("include") if isinstance(entry, dict) else None
        if not isinstance(include, str):
            raise ProjectError(str(path), f"{library!r} in `libraries`", "`glob: {include: transformations/**}`")
        if Path(include).is_absolute() or os.path.normpath(include) == ".":
            raise ProjectError(str(path), f"{include!r} in `libraries`", "a path in its folder, such as `sql/**`")
        patterns.append(f"{include}/*" if include.endswith("/**") else include)
    return patterns


def remedy_of_setting(key: str, value: str) -> str:
    """How to replace a setting of Spark on which rows depend. Empty for others, and for the values of a pipeline."""
    if key.lower() == ZONE_SETTING and value.upper() not in ("UTC", "ETC/UTC", "GMT", "Z"):
        return f'add time_zone = "{value}" to pipeline.toml before the store is created'
    if key.lower() == ZONE_SETTING or not key.startswith("spark.sql.") or _WITHOUT_EFFECT.fullmatch(key) is not None:
        return ""
    if _DEFAULTS.get(key.lower()) == value.lower():
        return ""
    return "remove it, or write its effect into the queries: a pipeline computes as Spark does without settings"


def path_within(path: Path, root: Path) -> str:
    """A path of the project's files, relative to its folder."""
    return Path(os.path.relpath(path, root)).as_posix()


def _files_of(root: Path, pattern: str) -> tuple[Path, ...]:
    """The SQL and Python files of a pattern, by path, without hidden folders and caches."""
    paths = (Path(os.path.normpath(match)) for match in root.glob(os.path.normpath(pattern)))
    return tuple(sorted(path for path in paths if path.suffix in _ENDINGS and path.is_file() and _is_shown(path, root)))


def _folders_of(root: Path, pattern: str) -> tuple[Path, ...]:
    """The folders in which a new file may match a pattern, by path."""
    head = takewhile(lambda part: not set("*?[") & set(part), Path(pattern).parent.parts)
    base = Path(os.path.normpath(root.joinpath(*head)))
    below = base.rglob("*") if "**" in pattern else iter(())
    folders = (base, *(path for path in below if path.is_dir()))
    return tuple(sorted(path for path in folders if path.is_dir() and _is_shown(path, root)))


def _is_shown(path: Path, root: Path) -> bool:
    parts = Path(os.path.relpath(path, root)).parts
    return all(part == ".." or not part.startswith(".") for part in parts) and "__pycache__" not in parts


def _text_in(document: Mapping[str, object], key: str) -> str | None:
    value = document.get(key)
    return None if value is None else str(value)
