"""What happens: sessions and what is said in them, and the task at hand."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from engrain.core.errors import Conflict, InvalidInput, NotFound, StoreError
from engrain.core.model.chat import ToolCall
from engrain.core.model.messages import Message
from engrain.core.model.sessions import SessionEnd, SessionStart
from engrain.core.validation import check_key, check_text
from engrain.engine.desk import PROCEDURE, WorkingDesk
from engrain.engine.parts import Parts
from engrain.tasks.execution import TaskExecution, TaskOptions
from engrain.tiers.conversation import ConversationMemory

_log = logging.getLogger("engrain")

ACTION = 100  # characters under which a result is kept; the rest of a long action says no more


class Happenings(Parts):
    # Sessions

    def start_session(self, session: str | None) -> SessionStart:
        name = self._new_id(self.services.clock()) if session is None else check_key(session, "session")
        if self.session is not None and self.session != name:
            self._leave(self.session)
        self.clear_erased()
        opening = self.sessions.open(name)
        for left in self.sessions.before(name) if self.model else ():
            self.enricher.wake(left, all_of_it=True)
        self.session = name
        if self.snapshots is not None:
            self.snapshots.restore(name, self.working)
        return opening

    def _leave(self, session: str) -> None:
        """To begin a session needs reading alone: where nothing can be written, the last one's summary waits."""
        try:
            self.end_session()
        except StoreError as exc:
            _log.warning("session %r is not summed up yet: %s", session, exc)

    def end_session(self) -> SessionEnd | None:
        session = self.session
        if session is None:
            return None
        closing = self.sessions.close(session)
        self.session = None
        self.enricher.wake(session, all_of_it=True)
        return closing

    def present(self, session: str | None = None) -> str:
        """The session meant: the one named, or else the present one, which begins with what is said first."""
        if session is not None:
            return check_key(session, "session")
        with self._present:
            if self.session is None:
                self.session = self._new_id(self.services.clock())
            return self.session

    def conversation(self, session: str | None = None) -> ConversationMemory:
        """The present one is kept: it knows what it has read."""
        name = self.present(session)
        known = self._talk
        if known is not None and known.session == name:
            return known
        talk = ConversationMemory(self.services, self.scope, name)
        if name == self.session:
            self._talk = talk
        return talk

    def add_messages(
        self,
        messages: Sequence[Any],
        session: str | None,
        expect: int | None,
        request_id: str | None,
        began: int | None = None,
    ) -> list[str]:
        talk = self.conversation(session)
        recorded = talk.take(messages, expect=expect, request_id=request_id, began=began)
        self.enricher.wake(talk.session)
        return list(recorded.ids)

    def call_id(self) -> str:
        return f"call_{self._new_id(self.services.clock())}"

    def record_tool_call(
        self, call: ToolCall, result: str, failed: bool, session: str | None, request_id: str | None
    ) -> str:
        """The call and its result, together."""
        asked = Message("assistant", calls=(call,))
        answer = Message("tool", result, answers=call.id, tool=call.name, failed=failed)
        return self.add_messages([asked, answer], session, None, request_id)[-1]

    # The task at hand

    def course(self, terms: TaskOptions, procedure: str | None, working: bool) -> TaskExecution:
        """A durable task, at hand in working memory unless that is not wanted."""
        if procedure is not None and not working:
            raise InvalidInput("a procedure is noted in working memory: leave working=False out.")
        if working:
            self.clear_erased()
        return self.tasks.course(terms, WorkingDesk(self, procedure) if working else None)

    def start_task(self, task: str, goal: str | None, procedure: str | None) -> str:
        used = self.version_of(procedure)
        last = self.last_erasure()
        id = self.working.set_task(task, goal)
        self._begun = (id, last)
        # Also when none is used: the task before may have used one.
        self.working.set_variable(PROCEDURE, used)
        return id

    def version_of(self, procedure: str | None) -> str | None:
        """The id of the version that is to be used now."""
        used = self.procedural.get(procedure) if procedure else None
        if procedure and used is None:
            known = ", ".join(self.procedural.names()[:10]) or "none"
            raise NotFound(f"there is no procedure {procedure!r} in this memory. Known: {known}.")
        return used.id if used else None

    def record_step(self, thought: str, action: str, result: Any) -> None:
        self._at_work("record_step")
        if thought:
            self.working.add_thought(thought)
        name = check_text(action, "action")[:ACTION]
        done = self.working.results
        times = sum(key == name or key.startswith(f"{name} (") for key in done)
        self.working.add_result(f"{name} ({times + 1})" if times else name, result)

    def end_task(self, success: bool, outcome: str) -> str | None:
        """The id of what was kept: knowledge if it succeeded, an episode if it failed."""
        if not isinstance(success, bool):
            raise InvalidInput(f"success must be True or False, not {success!r}.")
        task, id = self._at_work("end_task"), self.working.task_id
        self.count_procedure(id, success, outcome)
        if success:
            done = f"Successfully completed: {task}." + (f" Outcome: {outcome}" if outcome else "")
            kept = self.semantic.learn(done, importance=0.7, source="task")
        else:
            failure = f"Failed: {task}." + (f" Outcome: {outcome}" if outcome else "")
            kept = self.episodic.record_error(failure, session=self.present())
        self.working.clear()
        return kept

    def count_procedure(self, task: str, success: bool, note: str) -> None:
        used = self.working.get_variable(PROCEDURE)
        if isinstance(used, str):
            with suppress(NotFound):  # it was forgotten meanwhile
                self.procedural.used(used, task, success, note)

    def _at_work(self, verb: str) -> str:
        task = self.task_at_hand()
        if not task:
            raise Conflict(f"{verb} needs a task: call start_task first.")
        return task
