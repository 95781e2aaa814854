"""The verbs of knowledge: remember, recall, look up, correct, forget."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from engrain.core.clock import Time
from engrain.core.model.items import Item, Note, Relation, SessionPosition, Source
from engrain.core.model.plans import Change, Outcome
from engrain.core.model.recall import Recall, RecallRequest
from engrain.memory.opened import Filter, Opened
from engrain.telemetry import traced

if TYPE_CHECKING:
    from engrain.core.model.results import Explanation, ForgetResult


class Knowledge(Opened):
    @traced
    def remember(
        self,
        text: str,
        *,
        importance: float = 0.5,
        slot: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        source: str | Source | None = None,
        occurred_at: Time | None = None,
        place: SessionPosition | None = None,
        request_id: str | None = None,
    ) -> str:
        """Keep a text word for word, and return its id. When this returns, the text is on disk and can be found.

        `slot` names a place for one value ("user.city"): a newer value closes the older one. `place` puts the text into
        a session as a turn. Repeating a text returns the id it has; repeating a `request_id` gives the first answer
        and changes nothing.
        """
        note = Note(text, importance, slot, metadata, source, occurred_at, place)
        return self._open.remember(note, request_id)

    @traced
    def remember_many(
        self,
        notes: Iterable[str | Note | Mapping[str, Any]],
        *,
        request_id: str | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> builtins.list[Outcome]:
        """Keep many texts, in transactions of a few hundred; `progress` hears how many each of them wrote.

        All notes are checked before the first is written. With a `request_id` a call that was cut off can be repeated.
        """
        return self._open.remember_many(notes, request_id, progress)

    @traced
    def recall(
        self,
        query: str,
        *,
        n: int = 5,
        budget: int | None = None,
        as_of: Time | None = None,
        min_relevance: float | None = None,
        where: Filter | None = None,
        min_importance: float = 0.0,
    ) -> Recall:
        """Look through every kind of memory. `str()` of the answer is the block for the prompt.

        `budget` bounds its tokens. `as_of` asks what held at that time (of a date: at its end). With no `min_relevance`
        the embedder's own calibrated floor applies, 0 turns it off: the answer may be empty, and `omitted` says what
        was cut and why.
        """
        request = RecallRequest(
            query=query,
            n=n,
            budget=budget,
            at=as_of,  # type: ignore[arg-type]  # the engine proves it
            min_relevance=min_relevance,
            where=where,  # type: ignore[arg-type]
            min_importance=min_importance,
        )
        return self._open.recall(request)

    @traced
    def slot(self, name: str, *, as_of: Time | None = None) -> Item | None:
        """The item that holds this slot, now or at a time."""
        return self._open.slot(name, as_of)

    @traced
    def slots(self, prefix: str = "", *, as_of: Time | None = None) -> builtins.list[Item]:
        """Every filled slot whose name starts with the prefix, by name."""
        return self._open.slots(prefix, as_of)

    @traced
    def relate(
        self,
        subject: str,
        relation: str,
        object: str,
        *,
        importance: float = 0.5,
        metadata: Mapping[str, Any] | None = None,
        source: str | Source | None = None,
        request_id: str | None = None,
    ) -> str:
        """Keep a relation between two entities: relate("Ana", "works at", "Acme")."""
        note = Note("", importance, metadata=metadata, source=source)
        return self._open.relate(Relation(subject, relation, object), note, request_id)

    @traced
    def about(self, entity: str, *, as_of: Time | None = None) -> builtins.list[Item]:
        """The relations that an entity is part of, newest first."""
        return self._open.about(entity, as_of)

    # One item or many

    @traced
    def get(self, id: str) -> Item | None:
        """The item of this id, in whatever version; None if there is none, or none any more."""
        return self._open.get(id)

    @traced
    def list(
        self,
        where: Filter | None = None,
        *,
        as_of: Time | None = None,
        history: bool = False,
        limit: int = 100,
        after: str | None = None,
    ) -> builtins.list[Item]:
        """Items that match a filter, newest first: list({"kind": "fact", "importance": {">=": 0.5}}).

        `history` shows replaced and corrected versions as well. For the next page pass the last id as `after`.
        """
        from engrain.ports import ListQuery

        view = ListQuery(self._open.scope, None, as_of, history, limit, after)  # type: ignore[arg-type]
        return self._open.list(where, view)

    @traced
    def correct(self, id: str, text: str, *, source: str | Source | None = None, request_id: str | None = None) -> str:
        """It was never so: replace the text; returns the new version's id. If it changed, `remember` the new value."""
        return self._open.correct(id, Note(text, source=source), request_id)

    @traced
    def forget(self, what: str | Filter, *, keep_source: bool = False, request_id: str | None = None) -> ForgetResult:
        """Remove an item, or all that match a filter, with everything derived from it, from every file of the store.

        What it cites in the log is cut out as well; `keep_source` leaves the log as it is.
        """
        return self._open.forget(what, keep_source, request_id)

    @traced
    def pin(self, id: str, pinned: bool = True, *, request_id: str | None = None) -> None:
        """Keep an item from ever being consolidated away."""
        self._open.change(Change(id, pinned=pinned), request_id)

    @traced
    def update_importance(self, id: str, importance: float, *, request_id: str | None = None) -> None:
        """Set how much an item matters, from 0 to 1."""
        self._open.change(Change(id, importance=importance), request_id)

    @traced
    def why(self, id: str) -> Explanation:
        """Where an item came from, what it rests on, what it led to, how far it is trusted. `print` it."""
        return self._open.why(id)
