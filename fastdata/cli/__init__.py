"""The command `fastdata`: run it with arguments, return its exit code.

Exit codes: 0 done, 1 failed, 2 wrong usage, 3 done but some inputs were rejected; 128 and its number for a signal: 130
interrupted, 143 terminated. Expected errors are one line on stderr, and the end of the log of a worker that died, never
a traceback of the command; that is a fault of ours.

This module imports next to nothing, so that the signal handlers stand before anything slow is imported.
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
_ASKED = (signal.SIGINT, signal.SIGTERM)
# What else would end the process without a clean-up: a terminal that closes (HUP) or its Ctrl-\ (QUIT), what schedulers
# send before they kill (USR1, USR2, XCPU), `timeout -s`. Those of a crash are left alone.
_OTHERS = (
    "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGXCPU", "SIGALRM", "SIGVTALRM", "SIGPROF", "SIGPWR", "SIGBREAK",
)  # fmt: skip
INTERRUPTED = 128 + signal.SIGINT  # the shell's own number, 130


class Ended(SystemExit):
    """A signal came. Being an exit, it passes every `except Exception` and runs the clean-up on its way out."""

    code: int

    def __init__(self, number: int) -> None:
        super().__init__(128 + number)  # the shell's own numbers: 129 for SIGHUP, 143 for SIGTERM
        self.number = signal.Signals(number)

    def __str__(self) -> str:
        return self.number.name


class Interrupted(KeyboardInterrupt):
    """SIGINT came. Not the plain exception: once that has passed code that C ran, Python ends by SIGINT later."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command with these arguments (default: the process's own) and return its exit code.

    Args:
        argv: the arguments after the program's name.

    Returns:
        The exit code; see the module's table.
    """
    _hold_standard_descriptors()
    words = ""
    try:
        with _signals():
            code = _run(sys.argv[1:] if argv is None else list(argv))
    except Ended as end:
        code, words = end.code, "terminated" if end.number == signal.SIGTERM else f"ended by {end}"
    except KeyboardInterrupt:
        code = INTERRUPTED
    from fastdata.cli import terminal

    if code == INTERRUPTED:  # the library under us turns the exception into the code
        words = "interrupted"
    if words:
        terminal.complain(words)
    return code if terminal.flush() else max(code, FAILED)


def _hold_standard_descriptors() -> None:
    """Open what a caller closed (`>&-`) on nothing: a data file under the number of stderr would be written into."""
    if os.name != "posix":
        return
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free: this one


def _run(argv: list[str]) -> int:
    from fastdata.cli.app import command
    from fastdata.cli.terminal import complain
    from fastdata.errors import ConvertError, FastdataError, OptionError, as_resource_error

    try:
        with _plain_warnings():
            command().main(args=argv, prog_name="fastdata")
    except Ended:
        raise
    except SystemExit as end:  # how the library under us ends, also for --help and wrong usage
        return end.code if isinstance(end.code, int) else FAILED if end.code else DONE
    except OptionError as error:
        complain(f"error: {error}")
        complain(f"Try 'fastdata {argv[0]} --help' for what there is.")
        return USAGE
    except ConvertError as error:
        for line in (f"error: {error.message}", *error.log.splitlines()):
            complain(line)
        return FAILED
    except (FastdataError, OSError) as error:
        complain(f"error: {terminal_words(error)}")
        return FAILED
    except MemoryError:
        less = "" if "info" in argv[:1] else "; fewer workers (--workers) need less"
        complain(f"error: out of memory{less}")
        return FAILED
    except Exception as error:
        failed = as_resource_error(error, argv[0])  # no thread could be started, no library loaded
        if failed is None:
            raise
        complain(f"error: {failed}")
        return FAILED
    return DONE


@contextlib.contextmanager
def _plain_warnings() -> Iterator[None]:
    """Warnings as one printable line: they may quote what data of others say."""
    from fastdata.cli.terminal import complain

    def show(message: Warning | str, *_: object, **__: object) -> None:
        complain(f"warning: {message}")

    with warnings.catch_warnings():
        warnings.filterwarnings("default", category=UserWarning)  # also where PYTHONWARNINGS makes them errors
        warnings.showwarning = show
        yield


def terminal_words(error: Exception) -> str:
    """An error in one line: what our own errors say, or the system's words and the file."""
    if not isinstance(error, OSError) or not error.strerror:
        return str(error) or type(error).__name__
    names = [str(name) for name in (error.filename, error.filename2) if name is not None]
    return ": ".join([" -> ".join(names), error.strerror] if names else [error.strerror])


@contextlib.contextmanager
def _signals() -> Iterator[None]:
    """Signals that end the process become exceptions once, so that clean-up runs; a second one ends it at once."""
    came: list[int] = []

    def receive(number: int, frame: FrameType | None) -> None:
        if _is_within(frame, ignored.__code__):  # what is raised there is ignored, too
            _send_again(number)
            return
        came.append(number)
        for name in handled:
            signal.signal(name, signal.SIG_DFL)
        if signal.Signals(number).name == "SIGHUP":  # comes twice, from the terminal and its shell: nobody insists
            signal.signal(number, signal.SIG_IGN)
        if number == signal.SIGINT:
            raise Interrupted
        raise Ended(number)

    def ignored(left: sys.UnraisableHookArgs) -> None:
        """An exception that came where Python ignores it (importing has such places): the signal is to come again."""
        if left.exc_type not in (Ended, Interrupted):
            # Python tells of a signal that came together with the first one in the same way.
            if not (came and left.exc_type is OSError and "race condition" in str(left.exc_value)):
                hook(left)
            return
        for name in handled:
            signal.signal(name, receive)
        _send_again(came[-1])

    before, hook, handled = {}, sys.unraisablehook, _to_handle()
    with contextlib.suppress(ValueError):  # not the main thread: whoever called us there keeps the signals
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
    """Have a signal come a little later."""
    again = threading.Timer(0.01, os.kill, (os.getpid(), number))
    again.daemon = True
    again.start()


def _to_handle() -> list[signal.Signals]:
    """The signals that end the command: none that the parent ignores (nohup, a shell's background job), and of the
    rarer ones none that whoever called us handles."""
    asked = [number for number in _ASKED if signal.getsignal(number) is not signal.SIG_IGN]
    others = [getattr(signal, name) for name in _OTHERS if hasattr(signal, name)]
    return asked + [number for number in others if signal.getsignal(number) is signal.SIG_DFL]
