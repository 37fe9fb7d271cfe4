"""The command `tussock`, also as `python -m tussock`."""

import os
import signal
import sys


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
    sys.exit(main())
