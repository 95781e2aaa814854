"""Errors as RFC 9457 problem documents: one table from error class to status."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from engrain.core import errors

PROBLEM_TYPE = "application/problem+json"
RETRY_SECONDS = 1

# The nearest class in an error's ancestry decides.
STATUS_OF_ERROR: Mapping[type[BaseException], int] = {
    errors.InvalidInput: 422,
    errors.NotFound: 404,
    errors.Conflict: 409,
    errors.OnHold: 409,
    errors.TaskError: 409,
    errors.LeaseLost: 409,
    errors.AccessDenied: 403,
    errors.LimitReached: 429,
    errors.ConfigError: 501,
    errors.BackendMissing: 501,
    errors.EmbedderFailed: 503,
    errors.ModelFailed: 503,
    errors.StoreError: 503,
    errors.StoreCorrupt: 500,
    errors.ReadOnlyStore: 503,
    errors.EngrainError: 500,
}
TITLES: Mapping[int, str] = {
    400: "The request cannot be read",
    401: "A key is needed",
    403: "The key does not allow this",
    404: "Not found",
    405: "The path has no such method",
    408: "The request came too slowly",
    409: "Conflict",
    413: "Too large",
    415: "The body has the wrong type",
    422: "A value cannot be used",
    429: "Too many requests",
    500: "A defect of the server",
    501: "This store cannot do that",
    503: "The store cannot do this now",
}


@dataclass
class Problem(Exception):
    """An answer that is not a success. `error` is the name of engrain's error class, if one was the reason."""

    status: int
    detail: str
    error: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    more: Mapping[str, Any] = field(default_factory=dict)

    def to_document(self) -> dict[str, Any]:
        kind = f"urn:engrain:error:{self.error}" if self.error else "about:blank"
        document = {"type": kind, "title": TITLES[self.status], "status": self.status, "detail": self.detail}
        return {**document, **({"error": self.error} if self.error else {}), **self.more}


def to_problem(error: BaseException) -> Problem:
    """Turn an error of engrain into its problem. A store that is busy says when to try again."""
    kind = next(ancestor for ancestor in type(error).__mro__ if ancestor in STATUS_OF_ERROR)
    status = STATUS_OF_ERROR[kind]
    headers = {"Retry-After": str(RETRY_SECONDS)} if status == 503 else {}
    more: dict[str, Any] = {}
    if isinstance(error, errors.BadFile):
        more["lines"] = [line._asdict() for line in error.lines[:100]]
    if isinstance(error, errors.StepAmbiguous):
        more |= {"task": error.task, "step": error.step, "occurrence": error.occurrence, "key": error.key}
    return Problem(status, str(error), type(error).__name__, headers, more)


def limit_problem(detail: str, seconds: float) -> Problem:
    """A limit of the key is reached: 429, with the seconds to wait."""
    return Problem(
        429, detail, "LimitReached", headers={"Retry-After": str(max(1, int(seconds) + (seconds > int(seconds))))}
    )


def overload_problem(detail: str) -> Problem:
    return Problem(503, detail, "StoreUnavailable", headers={"Retry-After": str(RETRY_SECONDS)})
