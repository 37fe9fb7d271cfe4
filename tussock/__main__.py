"""The command `tussock`, also as `python -m tussock`."""

import signal
import sys


def main() -> int:
    """Run the command line. Until it is imported, which takes a moment, Ctrl-C ends the process without a traceback."""
    handler = signal.getsignal(signal.SIGINT)
    interrupts = handler is signal.default_int_handler  # not under nohup, which ignores the signal
    if interrupts:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from tussock.jobs.cli import main as run

    if interrupts:
        signal.signal(signal.SIGINT, handler)
    return run()


if __name__ == "__main__":
    sys.exit(main())
