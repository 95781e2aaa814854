"""A model whose use is counted, for `status`."""

from __future__ import annotations

import contextvars
import threading
import time
from typing import TYPE_CHECKING

from engrain.core.errors import EngrainError, ModelFailed
from engrain.core.model.chat import ChatReply, ChatRequest

if TYPE_CHECKING:
    from engrain.ports import Model


GRACE = 1.0  # seconds after its time-out that a model may take to say itself that it failed


class MeteredModel:
    """Whatever the model inside raises or returns, outside it is a Reply or ModelFailed; a bad ask stays InvalidInput.

    `calls` counts every ask, `failures` those without a usable answer, and `last_error` is what the last of them said.
    A model that does not keep to the time-out of an ask is left alone with it, and asked nothing else until it answers;
    `pending` is the age of the oldest ask that is not answered.
    """

    def __init__(self, model: Model) -> None:
        self._model = model
        self._lock = threading.Lock()
        self.calls = self.failures = self.tokens_in = self.tokens_out = 0
        self.last_error: str | None = None
        self._asked_at: dict[int, float] = {}  # asks that wait for their answer
        self._hanging: set[int] = set()  # those that nobody waits for any more

    @property
    def pending(self) -> float | None:
        """In seconds; None if nothing is asked."""
        with self._lock:
            oldest = min(self._asked_at.values(), default=None)
        return None if oldest is None else round(time.monotonic() - oldest, 1)

    @property
    def name(self) -> str:
        return self._model.name

    def reply(self, ask: ChatRequest) -> ChatReply:
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

    def _asked(self, ask: ChatRequest) -> ChatReply:
        if self._hanging:
            raise ModelFailed(f"The model {self.name} has not answered for {self.pending or 0:.0f} s.")
        try:
            reply = self._waited_for(ask)
        except EngrainError:
            raise
        except Exception as exc:  # a model of somebody else may raise anything
            raise ModelFailed(f"The model {self.name} failed: {type(exc).__name__}: {exc}") from exc
        if not isinstance(reply, ChatReply):
            raise ModelFailed(f"The model {self.name} returned a {type(reply).__name__}, not a Reply.")
        return reply

    def _waited_for(self, ask: ChatRequest) -> object:
        """With a time-out in a thread of its own: a call that never returns would hold its caller for ever."""
        if ask.timeout is None:
            return self._model.reply(ask)
        answer: list[object] = []
        trouble: list[BaseException] = []

        def call() -> None:
            try:
                answer.append(self._model.reply(ask))
            except BaseException as exc:  # noqa: BLE001  # raised below, where somebody waits for it
                trouble.append(exc)
            finally:
                with self._lock:
                    self._asked_at.pop(id(answer), None)
                    self._hanging.discard(id(answer))

        run = contextvars.copy_context().run
        thread = threading.Thread(target=run, args=(call,), name="engrain-model", daemon=True)
        with self._lock:
            self._asked_at[id(answer)] = time.monotonic()
        thread.start()
        thread.join(ask.timeout + GRACE)
        with self._lock:
            if id(answer) in self._asked_at:
                self._hanging.add(id(answer))
                raise ModelFailed(f"The model {self.name} did not answer within {ask.timeout:g} s.")
        if trouble:
            raise trouble[0]
        return answer[0]
