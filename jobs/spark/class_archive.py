"""The class-data archive of the JVM that runs Spark: classes mapped from a file instead of read and verified from jars.

It saves a third of a short job's CPU seconds. An archive fits one Java and one set of Spark's jars, so a digest of both
is part of its name:

    <Python's folder>/share/tussock/spark-<digest>.jsa    for all users of this Python; `python -m
                                                          tussock.jobs.submitted class-archive` writes it
    <cache folder>/tussock/spark-<digest>.jsa             of one user; the first JVM without an archive writes it

A JVM writes its archive at its exit, to a file `.new`, and its header last. The next command or session renames a
complete file, and is the first to start from it. So nothing waits for the writing, and no JVM reads half an archive.
The file is created empty before the JVM starts, which claims the work: other JVMs that start meanwhile write none.

The archive holds the classes that its JVM loaded. So a command or session whose JVM writes one first runs some queries
(class_loading.py): otherwise an `apply`, which only binds statements, would leave out what queries need.

A JVM may crash on a damaged archive. A command or session then starts without it, and removes the user's
(`forget_archive`). A job of spark-submit cannot, so it never renames an archive.

An archive is never necessary. A JVM silently starts without one that does not fit.
"""

import os
import re
import shutil
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path

SUBMIT_OPTIONS = "SPARK_SUBMIT_OPTS"
"""The environment variable with options for the driver's JVM. Remote executors do not see it."""

LAUNCHER_OPTIONS = "SPARK_LAUNCHER_OPTS"
"""The variable with options for the JVM in which spark-submit composes the driver's command line."""

BRIEF = "-XX:TieredStopAtLevel=1"
"""Half of a short job's CPU seconds belong to the optimising compiler. Later options win over this one."""

SERIAL = "-XX:+UseSerialGC"
"""The collector of a short job: the default one starts more threads. A JVM refuses two of them."""

QUIET = "-Xlog:cds=off -Xlog:cds+dynamic=off"

CLAIM_S = 86_400.0
"""Age of a claim that has brought no archive, because its JVM was killed or could not write. Another JVM may try."""

UNUSED_S = 21 * 86_400.0
"""Age since the last use after which an archive in the cache folder is removed, such as an earlier Java's."""

MOST_ARCHIVES = 8
"""How many archives of 150 MB stay in the cache folder. Each folder with Spark's jars has its own, so a test of many
virtual environments leaves many."""

_CLASS_PATHS = ("SPARK_CONF_DIR", "HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_DIST_CLASSPATH", "SPARK_CLASSPATH")
_OF_ANY_JVM = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "PYSPARK_SUBMIT_ARGS")
_WRITES = "-XX:ArchiveClassesAtExit"
_COLLECTOR = re.compile(r"-XX:\+Use\w+GC\b")
_OF_CDS = ("-XX:SharedArchiveFile", _WRITES, "-XX:AOT", "-Xshare:")
_CONTENTS = 2  # of an archive that load_classes has filled; part of its name
_MAGIC = (0xF00BABA8).to_bytes(4, sys.byteorder)  # of a dynamic archive, in every release since Java 13


def archive_of_python() -> Path:
    """The archive for all users of this Python."""
    return Path(sys.prefix) / "share/tussock" / archive_name()


def archive_of_user() -> Path:
    """The archive in the user's cache folder."""
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(cache).expanduser() / "tussock" / archive_name()


def archive_name() -> str:
    """The file name for the Java and the Spark that `spark-submit` would start now. Cost: reads a small file."""
    jars = _spark_home() / "jars"
    added = int(jars.stat().st_mtime) if jars.is_dir() else 0
    return f"spark-{sha256(f'{_CONTENTS} {_java_release()} {jars} {added}'.encode()).hexdigest()[:16]}.jsa"


def submit_options(*, writes: bool = False, brief: bool = False, more: str = "") -> dict[str, str]:
    """The variables that make a driver's JVM start fast, added to their current values. Empty if there are none.

    No archive is used if the current options already concern archives.

    Args:
        writes: if the JVM that wrote an archive has ended, be the first to start from it; without one, make the JVM
            write one at its exit, to the user's cache folder. Only for callers that start again without the options.
        brief: the JVM works for seconds only, so compile its code quickly and never optimise it.
        more: the options that the JVM gets from elsewhere.
    """
    user_options = os.environ.get(SUBMIT_OPTIONS, "")
    options = [_archive_option(writes), *(_brief_options(more) if brief else ())]
    if not any(options):
        return {}
    launcher = {LAUNCHER_OPTIONS: os.environ.get(LAUNCHER_OPTIONS, BRIEF)}
    return {SUBMIT_OPTIONS: " ".join(filter(None, [*options, user_options])), **launcher}


def writes_archive(options: Mapping[str, str]) -> bool:
    """Whether a JVM with the variables of `submit_options` writes an archive."""
    return _WRITES in options.get(SUBMIT_OPTIONS, "")


def _brief_options(more: str) -> tuple[str, ...]:
    """The options of a brief JVM. The user's collector stays."""
    option_texts = [more, *(os.environ.get(name, "") for name in (SUBMIT_OPTIONS, *_OF_ANY_JVM))]
    return (BRIEF,) if any(map(_COLLECTOR.search, option_texts)) else (BRIEF, SERIAL)


def _archive_option(writes: bool) -> str:
    """The options to use or to write an archive; empty for a JVM without one."""
    if any(option in os.environ.get(name, "") for name in (SUBMIT_OPTIONS, *_OF_ANY_JVM) for option in _OF_CDS):
        return ""
    with suppress(OSError, RuntimeError):  # no home folder, no right to write, a full disk
        archive = _find_archive(renames=writes)
        if writes:
            _remove_unused(archive_of_user())
        if archive is not None:
            return f'"-XX:SharedArchiveFile={archive}" {QUIET}'
        if writes and (new := _claim_file(archive_of_user())) is not None:
            return f'"{_WRITES}={new}" {QUIET}'
    return ""


def forget_archive() -> None:
    """Remove the user's archive, since a JVM did not start from it."""
    with suppress(OSError, RuntimeError):
        archive_of_user().unlink()


def _find_archive(*, renames: bool) -> Path | None:
    """An existing archive. Marks the user's as used. `renames`: also a complete new one, which gets its last name."""
    if (of_python := archive_of_python()).is_file():
        return of_python
    of_user = archive_of_user()
    if renames:
        with suppress(OSError):  # another process has renamed it, or the folder belongs to another user
            if _is_complete(new := _new_name(of_user)):
                _sync_file(new)  # or a crash of the host could leave a file with holes
                new.replace(of_user)
    if not of_user.is_file():
        return None
    with suppress(OSError):  # the file belongs to another user
        os.utime(of_user)
    return of_user


def _claim_file(archive: Path) -> Path | None:
    """The file for a JVM to write an archive to, if no other JVM is writing it."""
    conf = _spark_home() / "conf"
    if any(os.environ.get(name) for name in _CLASS_PATHS) or (conf.is_dir() and any(conf.iterdir())):
        return None  # a JVM writes no archive if a folder with files is on its class path
    archive.parent.mkdir(parents=True, exist_ok=True)
    new = _new_name(archive)
    try:
        new.open("xb").close()
    except FileExistsError:
        return None
    return new


def _new_name(archive: Path) -> Path:
    return archive.with_name(f"{archive.name}.new")


def _is_complete(new: Path) -> bool:
    """Whether a JVM has written the whole file. Its header, with the magic number, comes last."""
    if not new.is_file():
        return False
    with new.open("rb") as file:
        return file.read(4) == _MAGIC


def _sync_file(file: Path) -> None:
    """Wait until a file is on the disk."""
    with file.open("rb") as opened:
        os.fsync(opened.fileno())


def _remove_unused(but: Path) -> None:
    """Remove other archives that were unused for UNUSED_S or are more than MOST_ARCHIVES, and old files `.new`.

    A JVM that uses a removed archive goes on with it. One that finds it no longer starts without an archive.
    """
    recent = _files_by_age(but.parent, "spark-*.jsa", but)
    unused = [file for n, (age_s, file) in enumerate(recent) if age_s > UNUSED_S or n >= MOST_ARCHIVES - 1]
    left = [file for age_s, file in _files_by_age(but.parent, "spark-*.jsa.new", but) if age_s > CLAIM_S]
    for file in (*unused, *left):
        with suppress(OSError):  # of another user
            file.unlink(missing_ok=True)


def _files_by_age(folder: Path, pattern: str, but: Path) -> list[tuple[float, Path]]:
    """The files of a folder except one, each with the seconds since its last use, the last used first."""
    files = []
    for file in folder.glob(pattern):
        with suppress(OSError):  # another process removed it
            if file != but:
                files.append((time.time() - file.stat().st_mtime, file))
    return sorted(files)


def _java_release() -> str:
    """The release of the Java that `spark-submit` starts; empty if there is none."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java") if not home else str(Path(home) / "bin/java")
    if java is None or not Path(java).is_file():
        return ""
    binary = Path(java).resolve()
    release = binary.parent.parent / "release"
    if release.is_file():
        return f"{binary}\n{release.read_text()}"
    stat = binary.stat()
    return f"{binary} {stat.st_size} {stat.st_mtime_ns}"


def _spark_home() -> Path:
    """The folder of Spark, which need not exist."""
    if home := os.environ.get("SPARK_HOME"):
        return Path(home)
    spec = find_spec("pyspark")
    return Path("/nonexistent" if spec is None or spec.origin is None else spec.origin).parent
