"""A model whose use is counted, for `status`."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from engrain.core.chat import Ask, Reply
from engrain.core.errors import EngrainError, ModelFailed

if TYPE_CHECKING:
    from engrain.ports import Model


class MeteredModel:
    """Whatever the model inside raises or returns, outside it is a Reply or ModelFailed; a bad ask stays InvalidInput.

    `calls` counts every ask, `failures` those without a usable answer, and `last_error` is what the last of them said.
    """

    def __init__(self, model: Model) -> None:
        self._model = model
        self._lock = threading.Lock()
        self.calls = self.failures = self.tokens_in = self.tokens_out = 0
        self.last_error: str | None = None

    @property
    def name(self) -> str:
        return self._model.name

    def reply(self, ask: Ask) -> Reply:
        with self._lock:
            self.calls += 1
        try:
            reply = self._asked(ask)
        except ModelFailed as exc:
            with self._lock:
                self.failures += 1
                self.last_error = str(exc)
            raise
        with self._lock:
            self.tokens_in += reply.tokens_in
            self.tokens_out += reply.tokens_out
        return reply

    def _asked(self, ask: Ask) -> Reply:
        try:
            reply: object = self._model.reply(ask)
        except EngrainError:
            raise
        except Exception as exc:  # a model of somebody else may raise anything
            raise ModelFailed(f"The model {self.name} failed: {type(exc).__name__}: {exc}") from exc
        if not isinstance(reply, Reply):
            raise ModelFailed(f"The model {self.name} returned a {type(reply).__name__}, not a Reply.")
        return reply
