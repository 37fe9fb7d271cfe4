"""`tussock` on the command line: make a store, apply a pipeline's SQL, run epochs, query, explain, look inside."""

import os
import sys
import traceback
from collections.abc import Sequence

from tussock.jobs.settings.debugging import debugging
from tussock.jobs.shell import (
    care_commands,
    inspect_commands,
    pipeline_commands,
    query_commands,
    status_commands,
    verify_command,
)
from tussock.jobs.shell.command import Run, build_parser
from tussock.jobs.spark.jvm_errors import jvm_errors_as_ours
from tussock.statestore.errors import MustStopError, TussockError
from tussock.statestore.extras import extras_named

COMMANDS = (
    *pipeline_commands.COMMANDS,
    *status_commands.COMMANDS,
    *query_commands.COMMANDS,
    *inspect_commands.COMMANDS,
    *care_commands.COMMANDS,
    *verify_command.COMMANDS,
)

_OVERVIEW = """\
Incremental materialized views on Spark and object storage.

A store holds one pipeline's tables, sources and views. Statements wait in its
log; an epoch takes in what waits (statements, and new files of the sources),
brings every view up to date and commits it all at once. Between epochs nothing
runs.

From nothing to an answer:

  tussock init --store ./demo
  tussock query --store ./demo "CREATE TABLE t (k int, v int, PRIMARY KEY (k))"
  tussock query --store ./demo "CREATE MATERIALIZED VIEW total AS SELECT sum(v) AS v FROM t; INSERT INTO t VALUES (1, 10)"
  tussock epoch --store ./demo
  tussock query --store ./demo "SELECT * FROM total"
"""

_EPILOG = """\
which store: --store (a directory, or s3://bucket/prefix?endpoint=…), or
--pipeline (a folder below pipelines/), or TUSSOCK_STORE.

environment:
  TUSSOCK_STORE      the store, where neither --store nor --pipeline names one
  TUSSOCK_PIPELINES  the folder of the pipelines (default: the nearest pipelines/,
                     from here upwards)
  TUSSOCK_LOG=INFO   log what driver and workers do, on standard error
  TUSSOCK_DEBUG=1    tracebacks of errors, and Spark's own log

exit code:
  0    done
  1    an error, in one message; nothing half done is visible
  2    no such command or option; of `tussock plan`: there is something to do
  3    another run was first, nothing of this one is visible
  4    of `tussock status`: something is wrong with the pipeline
       of `tussock verify`: a view differs from Spark's answer
  5    of `tussock verify`: no view differs, but some could not be compared
  130  interrupted; the same command goes on from here
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command. The exit codes are those of `_EPILOG`."""
    chosen = build_parser(_OVERVIEW, _EPILOG, COMMANDS).parse_args(arguments)
    run: Run = chosen.run
    try:
        with jvm_errors_as_ours(), extras_named():
            return run(chosen) or 0
    except MustStopError as err:
        print(f"lost: {err}", file=sys.stderr)
        return 3
    except TussockError as err:
        print(f"error: {err}", *getattr(err, "__notes__", ()), sep="\n  ", file=sys.stderr)
        _trace_if_asked()
        return 1
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader of a pipe left; nothing to say
    except KeyboardInterrupt:
        print("interrupted; nothing half done is visible, and the same command goes on from here", file=sys.stderr)
        return 130
    except Exception as err:  # a process edge: a defect, or a fault of the machine, in one line too
        first = next(iter(str(err).strip().splitlines()), "no message")
        print(
            f"error: {type(err).__name__}: {first} (unexpected here; set TUSSOCK_DEBUG=1 to see its traceback)",
            file=sys.stderr,
        )
        _trace_if_asked()
        return 1
    return 0


def _trace_if_asked() -> None:
    if debugging():
        traceback.print_exc()


if __name__ == "__main__":
    sys.exit(main())
