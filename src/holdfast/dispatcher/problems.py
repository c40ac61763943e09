"""Errors on their way out: the status and the body of each, one form for all of them (contract section 15).

No answer tells more than its error does: what nobody foresaw is logged here and told as `unexpected`.
"""

from __future__ import annotations

from collections.abc import Mapping

from holdfast import errors
from holdfast.dispatcher.wire import Problem, Refused
from holdfast.errors import HoldfastError

MEDIA_TYPE = b"application/problem+json"
RETRY_AFTER_SECONDS = 1

_STATUSES: tuple[tuple[type[HoldfastError], int], ...] = (
    (errors.TaskNotFound, 404),
    (errors.RunNotFound, 404),
    (errors.ScheduleNotFound, 404),
    (errors.DatasetNotFound, 404),
    (errors.PayloadTooLarge, 413),
    (errors.InvalidTask, 422),
    (errors.Unauthorized, 401),
    (errors.Forbidden, 403),
    (errors.StoreUnavailable, 503),
    (errors.SchemaMismatch, 503),
)
_HEADERS = {401: {"www-authenticate": "Bearer"}, 503: {"retry-after": str(RETRY_AFTER_SECONDS)}}


class Refusal(HoldfastError):
    """What HTTP itself refuses: a path, a method, a form of body. Its code is its own."""

    def __init__(self, status: int, word: str, detail: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.word = word
        self.headers = headers or {}


def status_of(error: HoldfastError) -> int:
    if isinstance(error, Refusal):
        return error.status
    return next((status for kind, status in _STATUSES if isinstance(error, kind)), 409)


def refused(error: HoldfastError) -> Refused:
    """As one item of an answer."""
    return Refused(code=error.code, detail=str(error))


def problem(error: Exception) -> tuple[Problem, Mapping[str, str]]:
    """The body, and further headers."""
    if not isinstance(error, HoldfastError):
        return _said(500, "unexpected", "the dispatcher met an error that nobody foresaw; its log says which"), {}
    status = status_of(error)
    if isinstance(error, Refusal):
        return _said(status, error.word, str(error)), error.headers
    return _said(status, error.code, str(error)), _HEADERS.get(status, {})


def _said(status: int, code: str, detail: str) -> Problem:
    title = code.replace("_", " ")
    return Problem(type=f"urn:holdfast:error:{code}", title=title, status=status, code=code, detail=detail)
