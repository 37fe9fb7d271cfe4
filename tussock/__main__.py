"""The command `tussock`, also as `python -m tussock`."""

import atexit
import contextlib
import os
import signal
import sys
from typing import NoReturn


def run_command() -> NoReturn:
    """Run the command line as a process of its own, and end the process.

    The interpreter's own clean-up is left out, after all threads and atexit functions have ended: it frees every object
    one by one, and DuckDB's binding prints a list of those that Python cannot free.
    """
    codes: list[int] = []  # empty after an unexpected error, which Python ends as always
    atexit.register(lambda: _end_process(codes[0]) if codes else None)  # the first one, so that it runs last
    codes.append(main())
    sys.exit(codes[0])


def _end_process(code: int) -> NoReturn:
    with contextlib.suppress(OSError):  # a reader that has gone, as in `tussock query … | head`
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


def main() -> int:
    """Run the command line. Until it is imported, which takes a moment, Ctrl-C ends the process without a traceback."""
    _open_closed_streams()
    handler = signal.getsignal(signal.SIGINT)
    interrupts = handler is signal.default_int_handler  # not under nohup, which ignores the signal
    if interrupts:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from tussock.jobs.cli import main as run

    if interrupts:
        signal.signal(signal.SIGINT, handler)
    return run()


def _open_closed_streams() -> None:
    """Open the null device as each standard stream that the caller has closed, for this process and its children.

    Otherwise the next opened file, such as an object of the store, would receive the output of Java and of libraries.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, os.O_RDWR)  # the lowest free number, which is the stream's
            os.set_inheritable(opened, True)
            setattr(sys, name, os.fdopen(opened, mode))


if __name__ == "__main__":
    run_command()
