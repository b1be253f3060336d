"""Parses, dispatches, and turns errors into exit codes. The only place that catches `StepduelError`.

Only the module of the command that was asked for is imported: `stepduel --help` has to answer at once, and torch,
pandas and matplotlib take seconds. A command is one line in `COMMANDS` and one file whose function, named as here, is a
click command; what that function returns is the exit code (None for 0).
"""

from __future__ import annotations

import importlib
import os
import signal
import stat
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click

from harness import __version__
from harness.errors import StepduelError, closest

COMMANDS: Final[dict[str, tuple[str, str]]] = {
    # command: (module below harness.cli, its one line in --help)
    "bench": ("bench", "Run a scenario, trace its ranges, and say where the step goes."),
    "compare": ("compare", "Step two subjects in turn: which is faster, where, and is it the same work?"),
    "aa": ("aa", "Duel the same code against itself: the instrument's own test."),
    "overhead": ("overhead", "Measure what tracing costs."),
    "gate": ("gate", "Duel every scenario of the policy; fail on a regression."),
    "baseline": ("baseline", "Pin the revision that slow creep is held against."),
    "history": ("history", "Show a scenario over time: trend, changes of level, odd points."),
    "db": ("db", "Merge results databases, or prune one."),
    "index": ("index", "Write a page that lists all reports."),
    "report": ("report", "Compute a stored duel's verdict again."),
    "doctor": ("doctor", "Say what is wrong with this machine for measuring."),
    "clean": ("clean", "Remove cached source trees and what killed runs left."),
    "scenarios": ("scenarios", "List the scenarios, or show one resolved."),
    "analyze": ("analyze", "Say where the time of a trace goes, and what is wasted."),
    "diff": ("diff", "Explain two traces range by range."),
    "export": ("export", "Write a trace for Perfetto, as CSV or as Parquet."),
    "scrub": ("scrub", "Copy a trace without what identifies people and machines."),
}

EXIT_INTERRUPTED: Final = 130
EXIT_DEFECT: Final = os.EX_SOFTWARE
"""For an error that nobody expected: Python would end with 1, which here means a regression."""
EXIT_BROKEN_PIPE: Final = 128 + signal.SIGPIPE
"""What a shell reports for a program that SIGPIPE ended: the reader went away, which is nobody's regression."""
EXIT_CODES: Final = {
    0: "done",
    1: "regression",
    2: "usage or environment",
    3: "undecided or invalid",
    4: "a launch failed",
    EXIT_DEFECT: "a defect of stepduel itself",
    EXIT_INTERRUPTED: "interrupted",
    EXIT_BROKEN_PIPE: "whoever read the output went away",
}


class ReaderGoneError(Exception):
    """Whoever read stdout closed it. Stands in for BrokenPipeError, which click ends with 1: here, a regression."""


class LazyGroup(click.Group):
    """A group that knows its commands' names and help lines, and imports one only to run it."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's signature
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"harness.cli.{COMMANDS[cmd_name][0]}")
        command = getattr(module, COMMANDS[cmd_name][0])
        assert isinstance(command, click.Command)
        return command

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            raise ReaderGoneError from error

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            raise click.UsageError(f"no command {args[0]!r}.{closest(args[0], COMMANDS)}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's
        with formatter.section("Commands"):
            formatter.write_dl([(name, help_line) for name, (_, help_line) in COMMANDS.items()])


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=f"Exit codes: {', '.join(f'{code} {meaning}' for code, meaning in EXIT_CODES.items())}.",
)
@click.version_option(__version__, prog_name="stepduel")
def cli() -> None:
    """Puts two commits of a training engine side by side, and says which is faster, where, and whether both still
    compute the same thing.
    """


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit with its code."""
    sys.exit(run(arguments))


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; every expected error has been printed as one line."""
    _interrupt_on_termination()
    if sys.stdout is None:
        # Closed by the caller (`>&-`): whoever does that wants the exit code only.
        sys.stdout = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - open as long as the process
    status = _dispatch(arguments)
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _drop_stdout()
        # Ctrl-C ends every program of a pipe; that the reader is gone is no news then.
        return status if status == EXIT_INTERRUPTED else EXIT_BROKEN_PIPE
    except OSError as error:
        _drop_stdout()
        # Of a command that failed already, its own line says more.
        return status or _complain(f"cannot write to standard output: {error.strerror or error}", 2)
    return status


def _dispatch(arguments: Sequence[str] | None) -> int:
    try:
        given = list(sys.argv[1:] if arguments is None else arguments)
        return int(cli.main(args=given, prog_name="stepduel", standalone_mode=False, obj=tuple(given)) or 0)
    except StepduelError as error:
        return _complain(str(error), error.exit_code)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return 2
    except click.ClickException as error:
        return _complain(error.format_message(), 2)
    except (click.Abort, KeyboardInterrupt):
        return _complain("interrupted", EXIT_INTERRUPTED)
    except (BrokenPipeError, ReaderGoneError):
        return EXIT_BROKEN_PIPE
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        if not where and not _stdout_takes_more():
            where = "cannot write to standard output: "
        return _complain(f"{where}{error.strerror or error}", 2)
    except Exception:  # shown whole: only its exit code is chosen here
        traceback.print_exc()
        return EXIT_DEFECT


def _stdout_takes_more() -> bool:
    """Whether stdout can be written to, tried without leaving a trace. A failed write does not say where it went.

    Terminals and pipes are never full.
    """
    try:
        descriptor = sys.stdout.fileno()
        about = os.fstat(descriptor)
    except (OSError, ValueError):
        return True  # replaced by something in memory
    if stat.S_ISFIFO(about.st_mode) or stat.S_ISSOCK(about.st_mode) or os.isatty(descriptor):
        return True
    try:
        os.write(descriptor, b"\n")
        if stat.S_ISREG(about.st_mode):
            os.ftruncate(descriptor, about.st_size)
            os.lseek(descriptor, about.st_size, os.SEEK_SET)
    except OSError:
        _drop_stdout()
        return False
    return True


def _drop_stdout() -> None:
    """Let what is still buffered go nowhere; it would raise once more when the interpreter flushes on its way out."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _complain(message: str, exit_code: int) -> int:
    from harness.cli.output import clean

    print(f"stepduel: {clean(' '.join(message.split()))}", file=sys.stderr)
    return exit_code


def _interrupt_on_termination() -> None:
    """Let SIGTERM and a closed terminal end a command as Ctrl-C does, so that no launch outlives it."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, signal.default_int_handler)


if __name__ == "__main__":
    main()
