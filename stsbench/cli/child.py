"""A command with work for Ray goes on in a child process, whose end this process explains.

Ray ends the process that uses it, without an exception and with exit code 1, once a process of its
own has died. Of our commands that code means a regression.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from typing import NamedTuple, NoReturn

from typer import Exit

from stsbench.cli.printing import show_cursor
from stsbench.core.errors import StsbenchError

FORWARDED_SIGNALS = (signal.SIGINT, signal.SIGTERM)
"""The signals that are sent to the child too, unless a terminal has sent them to both."""
PARENT_DEATH_SIGNAL = 1
"""``PR_SET_PDEATHSIG`` of Linux: what to send a process when its parent dies."""
_exit_code_pipe: int | None = None
"""In the child, where it writes its exit code."""


def continue_in_child(executor: str) -> None:
    """Go on in a child process if the work is for Ray, and wait here until the child ends.

    Ray may end the process that uses it without an exception. So a child uses it, and this process
    explains its end. In the child the function returns. In this process it then never returns, but
    raises one of the errors below.

    The function returns at once, without a child, for other executors, outside Linux, where Python
    cannot wait for signals, and if torch or Ray is imported already, whose threads a fork would
    lose.

    Args:
        executor: The value of ``--on``.

    Raises:
        Exit: In this process, with the exit code of the child.
        KeyboardInterrupt: In this process, if Ray has ended the child after Ctrl-C.
        StsbenchError: In this process, if Ray has ended the child otherwise.
    """
    global _exit_code_pipe
    if executor != "ray" or sys.platform != "linux" or {"ray", "torch"} & sys.modules.keys():
        return
    # The child writes its exit code into the pipe; if Ray ends the child, the pipe stays empty.
    reader, writer = os.pipe()
    # SIGINT and SIGTERM, which are sent on to the child, and the signal of the child's end.
    awaited = {*FORWARDED_SIGNALS, signal.SIGCHLD}
    # Blocked signals stay pending until _wait_for_child reads them. The child gets the earlier mask
    # again.
    earlier_mask = signal.pthread_sigmask(signal.SIG_BLOCK, awaited)
    sys.stdout.flush()
    sys.stderr.flush()
    parent, child = os.getpid(), os.fork()
    if child == 0:
        os.close(reader)
        _exit_code_pipe = writer
        # The child must not outlive this process: the kernel kills it when its parent dies. If the
        # parent has died before this call, it ends here.
        ctypes.CDLL(None).prctl(PARENT_DEATH_SIGNAL, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
        signal.pthread_sigmask(signal.SIG_SETMASK, earlier_mask)
        return
    os.close(writer)
    try:
        end = _wait_for_child(child, awaited)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, earlier_mask)
    with os.fdopen(reader) as pipe:
        exit_code = pipe.read()
    if exit_code:
        raise Exit(int(exit_code))
    if end.is_interrupted:
        # While Ray is shut down, it may end the child before the child reports the interruption.
        raise KeyboardInterrupt
    # Ends by the user's signal that has ended the child, or else raises the StsbenchError.
    _end_as_child(end.exit_code)


def exit_if_child(exit_code: int) -> None:
    """End this process if it is a child that uses Ray, and send its exit code to the parent.

    By the code the parent learns that Ray has not ended the child. In any other process nothing is
    done: only a child has the pipe.
    """
    if _exit_code_pipe is not None:
        os.write(_exit_code_pipe, str(exit_code).encode())
        sys.exit(exit_code)


class ChildEnd(NamedTuple):
    """How the child has ended."""

    exit_code: int
    """Its exit code; if a signal ended it, minus the number of the signal."""
    is_interrupted: bool
    """Whether Ctrl-C was pressed, or SIGINT sent, before."""


def _wait_for_child(child: int, awaited: set[signal.Signals]) -> ChildEnd:
    """Wait until the child process ends, and meanwhile send it the signals that end a command.

    Args:
        child: The id of the child process.
        awaited: The signals to wait for, which are blocked: SIGCHLD, which the system sends when
            the child ends, and those to send on.

    Returns:
        The child's exit code (minus the number of a signal that has ended it), and whether SIGINT
        came before, as for Ctrl-C.
    """
    is_interrupted = False
    while True:
        received = signal.sigwaitinfo(awaited)
        if received.si_signo == signal.SIGCHLD:
            # SIGCHLD comes also if the child has only stopped or goes on: the id is 0 then.
            ended_process, status = os.waitpid(child, os.WNOHANG)
            if ended_process:
                return ChildEnd(os.waitstatus_to_exitcode(status), is_interrupted)
            continue
        is_interrupted |= received.si_signo == signal.SIGINT
        # A signal from a process has reached this process alone. One from the kernel, for Ctrl-C in
        # a terminal, has reached the child too.
        is_from_process = received.si_code <= 0
        if is_from_process:
            os.kill(child, received.si_signo)


def _end_as_child(exit_code: int) -> NoReturn:
    """End this process as its child has ended, without a message of its own.

    If a signal of the user has ended the child (SIGINT, SIGTERM or SIGKILL), this process ends by
    the same signal, so that a shell sees it. Any other end was caused by Ray.

    Args:
        exit_code: The child's exit code; minus the number of a signal that has ended it.

    Raises:
        StsbenchError: Ray has ended the child.
    """
    ending_signal = -exit_code
    if ending_signal in (*FORWARDED_SIGNALS, signal.SIGKILL):
        # With the system's default action the signal ends this process.
        signal.signal(ending_signal, signal.SIG_DFL)
        os.kill(os.getpid(), ending_signal)
    show_cursor()
    reason = f"exit code {exit_code}" if exit_code >= 0 else signal.Signals(-exit_code).name
    raise StsbenchError(
        f"Ray has ended this command ({reason}): a process of Ray's own has died",
        hint="what is done is kept; run the same command to resume",
    )
