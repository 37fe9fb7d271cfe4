"""The `tussock` command line. Each command is defined in `jobs/shell`."""

import errno
import os
import sys
import traceback
from argparse import Namespace
from collections.abc import Sequence

from tussock.jobs.settings.debugging import wants_debugging
from tussock.jobs.settings.redaction import without_secrets
from tussock.jobs.shell import (
    branch_commands,
    care_commands,
    diff_command,
    import_commands,
    import_sdp_command,
    inspect_commands,
    pipeline_commands,
    quality_commands,
    query_commands,
    status_commands,
    undo_command,
    verify_command,
    view_tests_command,
)
from tussock.jobs.shell.command import Run, build_parser, printed_warnings, to_run
from tussock.jobs.spark.jvm_errors import jvm_errors_as_ours
from tussock.statestore.errors import MustStopError, TussockError
from tussock.statestore.extras import extras_named

COMMANDS = (
    *pipeline_commands.COMMANDS,
    *status_commands.COMMANDS,
    *quality_commands.COMMANDS,
    *query_commands.COMMANDS,
    *inspect_commands.COMMANDS,
    *care_commands.COMMANDS,
    *branch_commands.COMMANDS,
    *verify_command.COMMANDS,
    *diff_command.COMMANDS,
    *undo_command.COMMANDS,
    *view_tests_command.COMMANDS,
    *import_commands.COMMANDS,
    *import_sdp_command.COMMANDS,
)

_OVERVIEW = """\
Incremental materialized views on Spark and object storage.

A store holds the tables, sources and views of one pipeline. Statements are
queued in its log. An epoch processes the queued statements and the new source
files, updates every view, and commits all of it atomically. Nothing runs
between epochs.

Quick start:

  tussock init --store ./demo
  tussock query --store ./demo "CREATE TABLE t (k int, v int, PRIMARY KEY (k))"
  tussock query --store ./demo "CREATE MATERIALIZED VIEW total AS SELECT sum(v) AS v FROM t"
  tussock query --store ./demo "INSERT INTO t VALUES (1, 10)"
  tussock epoch --store ./demo
  tussock query --store ./demo "SELECT * FROM total"
"""

EXIT_CODES = """\
  0    success
  1    error; the message describes it, and no partial result is visible
       `tussock diff`: rows or columns differ
       `tussock import --check`: the pipeline differs from the project
  2    unknown command or option
       `tussock plan`: the store differs from the SQL files
       `tussock diff`: error
  3    another run committed first; nothing of this run is visible
  4    `tussock status`: the pipeline has a problem
       `tussock verify`: a view differs from Spark's result
       `tussock import`: a model or a test was not taken
  5    `tussock verify`: no view differs, but some could not be compared
  130  interrupted; run the same command again to continue
"""

_EPILOG = f"""\
Choose the store with --store (a directory, or s3://bucket/prefix?endpoint=…),
with --pipeline (a folder in pipelines/), or with TUSSOCK_STORE.

environment:
  TUSSOCK_STORE      store to use without --store and --pipeline
  TUSSOCK_PIPELINES  folder of the pipelines (default: the nearest pipelines/ in
                     the working directory or its parents)
  TUSSOCK_ENV        environment of the pipelines, without --env
  TUSSOCK_BRANCH     branch of the store, without --branch
  TUSSOCK_LOG=INFO   log the driver and the workers to standard error
  TUSSOCK_DEBUG=1    print tracebacks of errors, and Spark's own log

exit codes:
{EXIT_CODES}"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code, as listed in `EXIT_CODES`."""
    chosen = Namespace(failed=1)
    try:
        chosen = build_parser(_OVERVIEW, _EPILOG, COMMANDS).parse_args(arguments)
        run: Run = chosen.run
        with printed_warnings(), jvm_errors_as_ours(), extras_named():
            code = run(chosen) or 0
            sys.stdout.flush()  # here, so that an error of the output has a message
            return code
    except MustStopError as err:
        print(without_secrets(f"lost: {err}"), file=sys.stderr)
        return 3
    except TussockError as err:
        message = without_secrets("\n  ".join((f"error: {err}", *getattr(err, "__notes__", ()))))
        print(to_run(chosen, message), file=sys.stderr)
        _trace_if_asked()
        return int(chosen.failed)
    except BrokenPipeError:
        _discard_output()  # the reader of the pipe closed it: no error
    except KeyboardInterrupt:
        print("interrupted; no partial result is visible. Run the same command again to continue.", file=sys.stderr)
        return 130
    except UnicodeEncodeError as err:
        unknown = err.object[err.start]
        print(
            f"error: standard output has the encoding {err.encoding}, which has no {unknown!r}. Set "
            "PYTHONIOENCODING=utf-8:backslashreplace, then run the command again.",  # names may contain any bytes
            file=sys.stderr,
        )
        return int(chosen.failed)
    except Exception as err:  # process edge: print defects and machine faults on one line
        if isinstance(err, OSError) and (fault := _fault_of_output(err)) is not None:
            print(f"error: {fault}. The output is incomplete.", file=sys.stderr)
            return int(chosen.failed)
        first = without_secrets(next(iter(str(err).strip().splitlines()), "no message"))
        print(
            f"error: {type(err).__name__}: {first} (unexpected; set TUSSOCK_DEBUG=1 to print the traceback)",
            file=sys.stderr,
        )
        _trace_if_asked()
        return int(chosen.failed)
    return 0


_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


def _fault_of_output(err: OSError) -> str | None:
    """Return a sentence if standard output cannot be written, or a disk is full; None for other errors."""
    try:
        sys.stdout.flush()
    except OSError as again:
        _discard_output()
        return f"standard output cannot be written: {again.strerror}"
    if err.errno in _FULL and err.filename is None:  # an unbuffered output has nothing left to flush
        return f"standard output or a temporary file cannot be written: {err.strerror}"
    return None


def _discard_output() -> None:
    """Prevent that Python writes the buffered output at its end, which fails again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _trace_if_asked() -> None:
    if wants_debugging():
        traceback.print_exc()


if __name__ == "__main__":
    sys.exit(main())
