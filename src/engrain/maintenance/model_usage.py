"""Count the use of a model for `status`, and bound the time of its calls."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from engrain.core.errors import EngrainError, ModelFailed
from engrain.core.model.messages import ChatReply, ChatRequest
from engrain.ports.timed_call import call_within

if TYPE_CHECKING:
    from engrain.ports import Model


GRACE_SECONDS = 1.0  # after its time-out, in which a model may report the failure itself


class MeteredModel:
    """A model that returns a ChatReply or raises ModelFailed, whatever the wrapped one does. InvalidInput stays.

    `calls` counts every request, `failures` those without a usable answer; `last_error` is the last failure. A request
    that exceeds its time-out is left alone, and the model gets no other until it answers. `pending` is the age of the
    oldest request without an answer.
    """

    def __init__(self, model: Model) -> None:
        self._model = model
        self._lock = threading.Lock()
        self.calls = self.failures = self.tokens_in = self.tokens_out = 0
        self.last_error: str | None = None
        self._started_at: dict[object, float] = {}  # requests without an answer
        self._hanging: set[object] = set()  # requests that nobody waits for any more

    @property
    def pending(self) -> float | None:
        """Seconds; None if there is no request."""
        with self._lock:
            oldest = min(self._started_at.values(), default=None)
        return None if oldest is None else round(time.monotonic() - oldest, 1)

    @property
    def name(self) -> str:
        return self._model.name

    def reply(self, request: ChatRequest) -> ChatReply:
        with self._lock:
            self.calls += 1
        try:
            reply = self._check_reply(request)
        except ModelFailed as exc:
            with self._lock:
                self.failures += 1
                self.last_error = str(exc)
            raise
        with self._lock:
            self.tokens_in += reply.tokens_in
            self.tokens_out += reply.tokens_out
        return reply

    def _check_reply(self, request: ChatRequest) -> ChatReply:
        if self._hanging:
            raise ModelFailed(f"The model {self.name} has not answered for {self.pending or 0:.0f} s.")
        try:
            reply = self._call_with_timeout(request)
        except EngrainError:
            raise
        except Exception as exc:  # a model of somebody else may raise anything
            raise ModelFailed(f"The model {self.name} failed: {type(exc).__name__}: {exc}") from exc
        if not isinstance(reply, ChatReply):
            raise ModelFailed(f"The model {self.name} returned a {type(reply).__name__}, not a Reply.")
        return reply

    def _call_with_timeout(self, request: ChatRequest) -> object:
        """Call the model on another thread if there is a time-out: its call may never return."""
        if request.timeout is None:
            return self._model.reply(request)
        mark = object()

        def call() -> object:
            try:
                return self._model.reply(request)
            finally:
                with self._lock:
                    self._started_at.pop(mark, None)
                    self._hanging.discard(mark)

        with self._lock:
            self._started_at[mark] = time.monotonic()
        try:
            return call_within(request.timeout + GRACE_SECONDS, call)
        except TimeoutError as exc:
            with self._lock:
                if mark not in self._started_at:  # the model's own error
                    raise
                self._hanging.add(mark)
            raise ModelFailed(f"The model {self.name} did not answer within {request.timeout:g} s.") from exc
