"""Turn the problem document of a server into the error that the verb raises in its own process."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from engrain.core import errors
from engrain.core.errors import BadFile, BadLine, EngrainError, LeaseLost, OutcomeUnknown, StepAmbiguous

# The class of a problem that names none, by its status.
CLASS_OF_STATUS: Mapping[int, type[EngrainError]] = {
    400: errors.InvalidInput,
    401: errors.AccessDenied,
    403: errors.AccessDenied,
    404: errors.ConfigError,
    405: errors.ConfigError,
    413: errors.TooLarge,
    415: errors.ConfigError,
    422: errors.InvalidInput,
    429: errors.LimitReached,
    502: errors.StoreUnavailable,
    503: errors.StoreUnavailable,
    504: errors.StoreUnavailable,
}


def read_problem(status: int, body: bytes) -> Mapping[str, Any]:
    """Return the problem document; for an answer of something else, such as a proxy, one that says so."""
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        document = None
    if isinstance(document, dict) and isinstance(document.get("detail"), str):
        return document
    return {"detail": f"the server answered with status {status}, and not as engrain does."}


def to_error(status: int, document: Mapping[str, Any], request_id: str | None = None) -> BaseException:
    """Return the error that a problem names, with its attributes."""
    kind = getattr(errors, str(document.get("error")), None)
    if not isinstance(kind, type) or not issubclass(kind, (EngrainError, LeaseLost)):
        kind = CLASS_OF_STATUS.get(status, EngrainError)
    error: BaseException = kind.__new__(kind)
    # Not the class's own __init__: some build the message from parts, which the server did already.
    BaseException.__init__(error, document["detail"])
    if isinstance(error, BadFile):
        error.lines = tuple(BadLine(**line) for line in document.get("lines", ()))
    elif isinstance(error, StepAmbiguous):
        for name in ("task", "step", "occurrence", "key"):
            setattr(error, name, document.get(name, ""))
    elif isinstance(error, OutcomeUnknown):
        error.request_id, error.interrupt = request_id, None
    elif isinstance(error, errors.BackendMissing):
        error.extra = str(document.get("extra", ""))
    return error
