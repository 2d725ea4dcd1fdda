"""The command `fastdata`: run it with arguments and return its exit code.

Exit codes: 0 done, 1 failed, 2 wrong usage, 3 done but some inputs were rejected; 128 plus the number of a signal: 130
interrupted, 143 terminated. Expected errors are one line on stderr, followed by the end of the log if a worker died. A
traceback of the command is a bug.

This module imports almost nothing, so that the signal handlers are set before anything slow is imported.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import warnings
from collections.abc import Iterator, Sequence
from types import CodeType, FrameType

DONE, FAILED, USAGE, REJECTED = 0, 1, 2, 3
_REQUESTS = (signal.SIGINT, signal.SIGTERM)
# Other signals that would end the process without a clean-up: a terminal that closes (HUP) or its Ctrl-\ (QUIT), those
# that schedulers send before they kill (USR1, USR2, XCPU), `timeout -s`. Signals of a crash are left alone.
_OTHERS = (
    "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGXCPU", "SIGALRM", "SIGVTALRM", "SIGPROF", "SIGPWR", "SIGBREAK",
)  # fmt: skip
INTERRUPTED = 128 + signal.SIGINT  # the shell's own number, 130


class Ended(SystemExit):
    """A signal came. As a SystemExit it passes every `except Exception`, and clean-up code runs."""

    code: int

    def __init__(self, number: int) -> None:
        super().__init__(128 + number)  # the shell's own numbers: 129 for SIGHUP, 143 for SIGTERM
        self.number = signal.Signals(number)

    def __str__(self) -> str:
        return self.number.name


class Interrupted(KeyboardInterrupt):
    """SIGINT came. Not a plain KeyboardInterrupt, because Python ends by SIGINT once C code has seen one of those."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command with these arguments (default: the process's own) and return its exit code.

    Args:
        argv: the arguments after the program's name.

    Returns:
        The exit code; see the module's table.
    """
    _hold_standard_descriptors()
    message = ""
    try:
        with _signals():
            code = _run(sys.argv[1:] if argv is None else list(argv))
    except Ended as end:
        code, message = end.code, "terminated" if end.number == signal.SIGTERM else f"ended by {end}"
    except KeyboardInterrupt:
        code = INTERRUPTED
    from fastdata.cli import terminal

    if code == INTERRUPTED:  # typer turns the exception into this code
        message = "interrupted"
    if message:
        terminal.write_error(message)
    return code if terminal.flush() else max(code, FAILED)


def _hold_standard_descriptors() -> None:
    """Open closed descriptors (`>&-`) on the null device: a data file under stderr's number would be overwritten."""
    if os.name != "posix":
        return
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, which is this one


def _run(argv: list[str]) -> int:
    from fastdata.cli.app import command
    from fastdata.cli.terminal import write_error
    from fastdata.errors import ConvertError, FastdataError, OptionError, as_resource_error

    try:
        with _plain_warnings():
            command().main(args=argv, prog_name="fastdata")
    except Ended:
        raise
    except SystemExit as end:  # typer ends with it, also for --help and wrong usage
        return end.code if isinstance(end.code, int) else FAILED if end.code else DONE
    except OptionError as error:
        write_error(f"error: {error}")
        write_error(f"Try 'fastdata {argv[0]} --help' for the options.")
        return USAGE
    except ConvertError as error:
        for line in (f"error: {error.message}", *error.log.splitlines()):
            write_error(line)
        return FAILED
    except (FastdataError, OSError) as error:
        write_error(f"error: {one_line(error)}")
        return FAILED
    except MemoryError:
        less = "" if "info" in argv[:1] else "; fewer workers (--workers) need less"
        write_error(f"error: out of memory{less}")
        return FAILED
    except Exception as error:
        failed = as_resource_error(error, argv[0])  # no thread could be started, or no library loaded
        if failed is None:
            raise
        write_error(f"error: {failed}")
        return FAILED
    return DONE


@contextlib.contextmanager
def _plain_warnings() -> Iterator[None]:
    """Print each warning as one printable line, because it may quote text from a data set."""
    from fastdata.cli.terminal import write_error

    def show(message: Warning | str, *_: object, **__: object) -> None:
        write_error(f"warning: {message}")

    with warnings.catch_warnings():
        warnings.filterwarnings("default", category=UserWarning)  # also if PYTHONWARNINGS makes them errors
        warnings.showwarning = show
        yield


def one_line(error: Exception) -> str:
    """An error in one line: its message, or the file and the system's message."""
    if not isinstance(error, OSError) or not error.strerror:
        return str(error) or type(error).__name__
    names = [str(name) for name in (error.filename, error.filename2) if name is not None]
    return ": ".join([" -> ".join(names), error.strerror] if names else [error.strerror])


@contextlib.contextmanager
def _signals() -> Iterator[None]:
    """Raise the first signal as an exception, so that clean-up runs; a second one ends the process at once."""
    came: list[int] = []

    def receive(number: int, frame: FrameType | None) -> None:
        if _is_within(frame, ignored.__code__):  # Python also ignores what is raised there
            _send_again(number)
            return
        came.append(number)
        for name in handled:
            signal.signal(name, signal.SIG_DFL)
        if signal.Signals(number).name == "SIGHUP":  # comes twice, from the terminal and its shell
            signal.signal(number, signal.SIG_IGN)
        if number == signal.SIGINT:
            raise Interrupted
        raise Ended(number)

    def ignored(left: sys.UnraisableHookArgs) -> None:
        """Re-send a signal whose exception Python ignored (for example, inside an import)."""
        if left.exc_type not in (Ended, Interrupted):
            # Python reports a signal that came together with the first one in the same way.
            if not (came and left.exc_type is OSError and "race condition" in str(left.exc_value)):
                hook(left)
            return
        for name in handled:
            signal.signal(name, receive)
        _send_again(came[-1])

    before, hook, handled = {}, sys.unraisablehook, _to_handle()
    with contextlib.suppress(ValueError):  # outside the main thread, the caller keeps the signals
        for number in handled:
            before[number] = signal.signal(number, receive)
        sys.unraisablehook = ignored
    try:
        yield
    finally:
        sys.unraisablehook = hook
        for number, handler in before.items():
            signal.signal(number, handler)


def _is_within(frame: FrameType | None, code: CodeType) -> bool:
    while frame is not None and frame.f_code is not code:
        frame = frame.f_back
    return frame is not None


def _send_again(number: int) -> None:
    """Send a signal to this process a little later."""
    again = threading.Timer(0.01, os.kill, (os.getpid(), number))
    again.daemon = True
    again.start()


def _to_handle() -> list[signal.Signals]:
    """The signals that end the command: none that the parent ignores (nohup, a shell's background job), and of the
    rarer ones none that the caller handles."""
    requests = [number for number in _REQUESTS if signal.getsignal(number) is not signal.SIG_IGN]
    others = [getattr(signal, name) for name in _OTHERS if hasattr(signal, name)]
    return requests + [number for number in others if signal.getsignal(number) is signal.SIG_DFL]
