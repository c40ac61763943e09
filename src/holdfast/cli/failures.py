"""The one place where an error becomes a message and an exit code.

0 ok, 1 failure, 2 usage or invalid input, 3 not found, 4 refused, 5 store unreachable or schema mismatch, 130 Ctrl-C
"""

from __future__ import annotations

import sys

import click

from holdfast import errors
from holdfast.cli import output
from holdfast.cli.apps import AppBroken
from holdfast.errors import HoldfastError

FAILURE, USAGE, NOT_FOUND, REFUSED, UNREACHABLE, INTERRUPTED = 1, 2, 3, 4, 5, 130


class TokenNotFound(HoldfastError):
    code = "token_not_found"


_CODES: tuple[tuple[type[HoldfastError], int], ...] = (
    (errors.TaskNotFound, NOT_FOUND),
    (errors.RunNotFound, NOT_FOUND),
    (errors.ScheduleNotFound, NOT_FOUND),
    (errors.DatasetNotFound, NOT_FOUND),
    (errors.TaskNotRegistered, NOT_FOUND),
    (TokenNotFound, NOT_FOUND),
    (errors.InvalidTask, USAGE),
    (errors.StoreUnavailable, UNREACHABLE),
    (errors.SchemaMismatch, UNREACHABLE),
    (AppBroken, FAILURE),
)


def told(error: Exception, *, as_json: bool) -> int:
    """Say what went wrong on stderr; the exit code for it."""
    if isinstance(error, click.Abort):
        output.say("interrupted")
        return INTERRUPTED
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        error.show()
        return USAGE
    status, code, message = _described(error)
    if as_json:
        print(output.json_line({"error": {"code": code, "message": message}}), file=sys.stderr)
        return status
    label = output.painted("error:", "error", sys.stderr)
    print(f"{label} {output.safe(message, 4000)}", file=sys.stderr)
    if isinstance(error, click.UsageError) and error.ctx is not None:
        print(f"try: {error.ctx.command_path} --help", file=sys.stderr)
    return status


def _described(error: Exception) -> tuple[int, str, str]:
    """Exit code, stable code, message."""
    if isinstance(error, click.ClickException):
        code = "usage" if isinstance(error, click.UsageError) else "failure"
        return error.exit_code, code, error.format_message()
    if isinstance(error, HoldfastError):
        return exit_code(error), error.code, str(error)
    if isinstance(error, TimeoutError):
        return FAILURE, "timeout", str(error) or "it took too long"
    return FAILURE, "unexpected", f"unexpected {type(error).__name__}: {error}; --debug shows where"


def exit_code(error: HoldfastError) -> int:
    for kind, status in _CODES:
        if isinstance(error, kind):
            return status
    return FAILURE if type(error) is HoldfastError else REFUSED
