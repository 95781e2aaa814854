"""Memory: one scope's view of a store, with the verbs of its user."""

from __future__ import annotations

import builtins
import os
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, Self, TypeVar

from engrain.core.clock import Clock, Time, check_time, system_clock
from engrain.core.errors import InvalidInput
from engrain.core.identity import Scope, check_reads, check_scope
from engrain.core.model.filters import parse_filter
from engrain.core.model.items import Item, Note, SessionPosition, Source, SourceKind
from engrain.core.model.messages import Message, MessageResult
from engrain.core.model.plans import Change, Outcome
from engrain.core.model.recall import Effort, Recall, RecallRequest, check_effort
from engrain.core.model.results import count_progress
from engrain.core.validation import MAX_QUERY, check_count, check_key, check_share, check_text
from engrain.memory.foreign_verbs import answer_other_names
from engrain.memory.session_handle import Session
from engrain.memory.store import Store, fit_view
from engrain.telemetry import traced

if TYPE_CHECKING:
    from engrain.core.model.results import Explanation, ForgetResult, Progress
    from engrain.core.model.sessions import SessionEnd, SessionStart
    from engrain.mirror.mirror import Mirror
    from engrain.ports import Model, Services
    from engrain.ports.search import Embedder
    from engrain.privacy.erase import ErasureResult
    from engrain.tasks.manage_tasks import Tasks
    from engrain.tasks.run import Run
    from engrain.tiers.conversation import ConversationMemory
    from engrain.tiers.episodic import EpisodicMemory
    from engrain.tiers.procedural import ProceduralMemory
    from engrain.tiers.records import ScopedRecords
    from engrain.tiers.scoped_working import ScopedWorkingMemory
    from engrain.tiers.semantic import Relations, SemanticMemory, Slots
    from engrain.tiers.session_lifecycle import CurrentSession, Sessions
    from engrain.transfer.export import ExportResult
    from engrain.transfer.load import LoadResult
    from engrain.transfer.readers import LoadFormat

MAX_HITS = 1_000
MAX_BUDGET = 10_000_000
Filter = Mapping[str, Any]
Part = TypeVar("Part")


@answer_other_names
class Memory:
    """The memory of one (tenant, agent, user): a view of a store.

        with Memory("agent.db", user="ana") as memory:
            memory.remember("Ana prefers Python over JavaScript.", importance=0.8)
            print(memory.recall("Which language should the example use?"))

    `location` is a path (the file is made on first use), a URL, the path of a .toml file, or an opened Store. The URL
    of `engrain serve`, such as https://memory.example.com, needs a key: see Store. A view of a Store costs nothing: no
    thread, no file, nothing to close; `store.memory(user="ana")` makes the same. With anything else the view owns a
    store of its own, and the keywords from `embedder` on are those of Store. `recall` also searches the scopes in
    `reads`; nothing is ever written there.
    """

    def __init__(
        self,
        location: str | os.PathLike[str] | Store | None = None,
        *,
        user: str | None = None,
        agent: str | None = None,
        tenant: str | None = None,
        reads: Sequence[Scope] = (),
        embedder: Embedder | str | None = None,
        model: Model | str | None = None,
        clock: Clock = system_clock,
        background: bool = True,
        settings: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        self._scope = check_scope(tenant, agent, user)
        self._reads = tuple(scope for scope in check_reads(reads) if scope != self._scope)
        self._owns = not isinstance(location, Store)
        options: Any = {"embedder": embedder, "model": model, "clock": clock, "background": background}
        self._store = location if isinstance(location, Store) else Store(location, settings=settings, **options)
        self._parts: dict[str, Any] = {}
        self._lock = threading.RLock()
        fit_view(self, self._store)

    # Knowledge

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
        expires_at: Time | None = None,
        ttl: timedelta | float | None = None,
        position: SessionPosition | None = None,
        request_id: str | None = None,
    ) -> str:
        """Keep a text word for word, and return its id. When this returns, the text is on disk and can be found.

        A `slot` ("user.city") holds one value: a newer value closes the older one. After `expires_at`, or `ttl` seconds
        from now, nobody finds the text any more. `position` puts it into a session as a turn. Repeating a text returns
        its id. Repeating a `request_id` returns the first answer and changes nothing.
        """
        from engrain.ingest.write import compute_expiry

        expires = compute_expiry(self._services.clock, expires_at, ttl)
        note = Note(text, importance, slot, metadata, source, occurred_at, position, expires_at=expires)
        return self.semantic.remember(note, request_id)

    @traced
    def remember_many(
        self,
        notes: Iterable[str | Note | Mapping[str, Any]],
        *,
        request_id: str | None = None,
        progress: Progress | None = None,
    ) -> builtins.list[Outcome]:
        """Keep many texts, in transactions of a few hundred.

        All notes are checked before the first is written. With a `request_id` an interrupted call can be repeated.
        """
        return self.semantic.remember_many(notes, request_id, progress)

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
        shown: Collection[str] | None = None,
        deadline: float | None = None,
        effort: Effort = "quick",
    ) -> Recall:
        """Search every kind of memory. `str()` of the answer is the text for the prompt.

        `budget` bounds its tokens. `as_of` returns what was valid at that time; a date means the end of the day.
        `min_relevance=0` turns the embedder's floor off. `shown` are ids of items that the prompt has already: these
        and the work in progress are left out. If the embedder needs more than `deadline` seconds, words alone are
        searched. effort="thorough" orders the best again. `omitted` and `degraded` say what is missing, and why.
        """
        from engrain.memory.prompt_block import answer_recall

        request = RecallRequest(
            check_text(query, "query", MAX_QUERY),
            (self._scope, *self._reads),
            n=check_count(n, "n", 1, MAX_HITS),
            budget=None if budget is None else check_count(budget, "budget", 0, MAX_BUDGET),
            at=None if as_of is None else check_time(as_of, "as_of", end_of_day=True),
            now=self._services.clock(),
            min_relevance=None if min_relevance is None else check_share(min_relevance, "min_relevance"),
            where=parse_filter(where),
            min_importance=check_share(min_importance, "min_importance"),
            shown=None if shown is None else frozenset(shown),
            effort=check_effort(effort),
        )
        return answer_recall(self, self._services, request, deadline=deadline)

    @traced
    def prompt(self, request: str, *, budget: int | None = None, history: bool = True) -> str:
        """Return a request with all that a model should know for it.

        It holds, in this order: standing wishes, facts about the user, the work in progress, recalled items and the
        conversation so far.
        """
        from engrain.memory.prompt_block import answer_recall, prepare_prompt

        prepared = prepare_prompt(self, self._services, request, (self._scope, *self._reads), budget, history)
        return prepared.render(answer_recall(self, self._services, prepared.request, whole_profile=True))

    @traced
    def get(self, id: str) -> Item | None:
        """Return the item of this id, in any version; None if there is none, or none any more."""
        return self._find_owner_of(id).get(id)

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
        """Return items that match a filter, newest first: list({"kind": "fact", "importance": {">=": 0.5}}).

        `history` adds replaced and corrected versions. For the next page pass the last id as `after`.
        """
        return self.semantic.list(where, as_of=as_of, history=history, limit=limit, after=after)

    @traced
    def update(
        self,
        id: str,
        *,
        importance: float | None = None,
        pinned: bool | None = None,
        metadata: Mapping[str, Any] | None = None,
        expires_at: Time | None = None,
        request_id: str | None = None,
    ) -> None:
        """Change an item's importance (0 to 1), pin, metadata or expiry, not its text. Other values stay.

        Consolidation never removes a pinned item.
        """
        expires = None if expires_at is None else check_time(expires_at, "expires_at")
        self.semantic.change(Change(id, importance, pinned, metadata, expires), request_id)

    @traced
    def correct(self, id: str, text: str, *, source: str | Source | None = None, request_id: str | None = None) -> str:
        """Replace a text that was wrong, and return the new version's id. If a fact changed, `remember` the new one."""
        return self.semantic.correct(id, Note(text, source=source), request_id)

    @traced
    def forget(self, what: str | Filter, *, keep_source: bool = False, request_id: str | None = None) -> ForgetResult:
        """Remove an item, or all that match a filter, with everything derived from it, from every file of the store.

        The words that it cites in the log are removed as well; `keep_source` leaves the log as it is.
        """
        return self.semantic.forget(what, keep_source=keep_source, request_id=request_id)

    @traced
    def explain(self, id: str) -> Explanation:
        """Return an item's sources, the items that it cites, those that cite it, and its trust. `print` it."""
        return self._find_owner_of(id).explain(id)

    # Sessions

    def session(self, id: str | None = None) -> Session:
        """Open a new session or continue one. Several may be open at once; none becomes the default one."""
        return Session(self._services, self._scope, self._session_id(id))

    @traced
    def start_session(self, id: str | None = None) -> SessionStart:
        """Start or continue a session, and make it the default of this memory. An open default session ends first.

        `str()` of the answer is a text for the prompt: the user's profile, the last summary, and recent important
        events.
        """
        session, current = self._session_id(id), self._current
        if current.id is not None and current.id != session:
            self.sessions.end_if_writable(current.id)
            current.id = None
        self.working.clear_erased()
        start = self.sessions.start(session)
        current.id = session
        self.working.resume_session(session)
        return start

    @traced
    def add_message(
        self,
        role: str,
        text: str,
        *,
        speaker: str | None = None,
        session: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        occurred_at: Time | None = None,
        expect: int | None = None,
        request_id: str | None = None,
    ) -> MessageResult:
        """Keep a message word for word. Without a session it goes to the default one.

        A lasting statement of a user ("I prefer …", "my city is …", "remember that …") becomes a fact that cites these
        words; quoted and pasted words do not. The result has the message's id and what followed from it. With `expect`
        the session must have that many messages, else Conflict.
        """
        message = Message(role, text, speaker, metadata=metadata or {}, occurred_at=occurred_at)
        return self._record([message], session, expect, request_id)[0]

    @traced
    def add_messages(
        self,
        messages: Sequence[Any],
        *,
        session: str | None = None,
        expect: int | None = None,
        request_id: str | None = None,
    ) -> builtins.list[MessageResult]:
        """Keep several messages together: Messages, or dicts and objects of the Anthropic and OpenAI APIs."""
        return self._record(messages, session, expect, request_id)

    @traced
    def end_session(self, *, request_id: str | None = None) -> SessionEnd | None:
        """End the default session and keep its summary, which recall finds. None if there is no session."""
        if first := self.sessions.find_end(request_id):
            return first
        if (session := self._current.id) is None:
            return None
        end = self.sessions.end(session, request_id=request_id)
        self._current.id = None
        return end

    # Durable tasks

    def task(
        self,
        id: str,
        *,
        goal: str = "",
        version: str = "",
        accepts: Sequence[str] = (),
        lease: float = 30.0,
        max_age: timedelta | float | None = None,
        procedure: str | None = None,
        working: bool = True,
    ) -> Run:
        """Run a task whose steps never run twice: with memory.task("order-42", goal="ship it") as run: …

        Entering claims the task and replays its journal; TaskClaimed names the worker that has it. `version` is that of
        your code, `accepts` the older ones whose tasks it may continue. Without a sign of life the lease ends after
        `lease` seconds. After `max_age` seconds an unfinished task becomes "expired". `run.working` is its working
        memory, stored with each step; working=False does without. `run.outcome` becomes knowledge when the task is
        done, and counts for its `procedure`. docs/reference/tasks.md has the promises.
        """
        from engrain.tasks.run import Run
        from engrain.tasks.run_lifecycle import TaskOptions

        options = TaskOptions(id, goal, version, accepts, lease, max_age)
        return Run(self.tasks.execution(options, procedure, working))

    # A person's own data

    @traced
    def export(
        self,
        path: str | os.PathLike[str],
        *,
        format: Literal["jsonl", "markdown"] = "jsonl",
        vectors: bool = False,
        overwrite: bool = False,
        progress: Progress | None = None,
    ) -> ExportResult:
        """Write this memory to a file: JSON Lines, which `load` restores item for item, or Markdown for people.

        The file appears only when it is complete, and only you can read it. docs/reference/export-format.md has the
        form.
        """
        from engrain.memory.transfer import export_scope, open_output

        return export_scope(self._services, self._scope, open_output(path, overwrite), format, vectors, progress)

    @traced
    def load(
        self,
        path: str | os.PathLike[str] | BinaryIO,
        *,
        format: LoadFormat | None = None,
        source: str | None = None,
        skip_bad: bool = False,
        other_scope: bool = False,
        dry_run: bool = False,
        facts: bool = False,
        trusted: bool = False,
        progress: Progress | None = None,
    ) -> LoadResult:
        """Load an export of engrain, notes (JSON Lines, text, Markdown, CSV), or what another system holds.

        The form is detected: docs/how-to/import-and-export.md lists all of them. Everything is checked first: BadFile
        lists the problems line by line, and nothing is written. Known items are skipped, forgotten ones stay forgotten.
        `facts` extracts lasting statements of the user from conversations of other programs, as `add_message` does. No
        item of a file is trusted more than an import, and none is pinned, unless you vouch for the file with `trusted`:
        an export that you made yourself.
        """
        from engrain.memory.transfer import finish_load, open_input
        from engrain.transfer.load import LoadOptions, load

        options = LoadOptions(format, source, skip_bad, other_scope, dry_run, facts, trusted)
        with open_input(path) as file:
            loaded = load(file, self._scope, self._services, options, count_progress(progress, "rows"))
        finish_load(self._services, self._scope, loaded, progress)
        return loaded

    @traced
    def erase(
        self,
        *,
        session: str | None = None,
        source: str | None = None,
        id: str | None = None,
        folders: Sequence[str | os.PathLike[str]] = (),
        dry_run: bool = False,
        progress: Progress | None = None,
        request_id: str | None = None,
    ) -> ErasureResult:
        """Erase everything of this memory's user, for every agent; or a session, a source, or an item of this memory.

        It covers every tier, index, journal and server, and the files in `folders`, down to the bytes. A search then
        verifies it, and the answer has a receipt. NotFound if nothing was ever kept of it; OnHold under a legal hold. A
        dry run changes nothing. A killed erasure continues when the store is next opened.
        """
        from engrain.privacy.erase import erase
        from engrain.privacy.erasure_requests import make_subject, prepare_erasure, preview_erasure

        subject = make_subject(self._scope, session=session, source=source, id=id)
        if dry_run:
            return preview_erasure(self._services, subject, folders)
        return erase(self._services, prepare_erasure(self._services, subject, folders, request_id), progress)

    def mirror(
        self,
        folder: str | os.PathLike[str],
        *,
        max_lines: int = 200,
        max_bytes: int = 25_000,
        by: SourceKind = "user",
    ) -> Mirror:
        """Mirror this memory in a folder with SOUL.md, MEMORY.md and memory/YYYY-MM-DD.md, by `sync()` or `watch()`.

        Text in the files counts as said by the user; with by="agent" as said by the agent.
        """
        from engrain.core.markdown.layout import PageBudget
        from engrain.factory import open_folder
        from engrain.mirror.mirror import Mirror

        return Mirror(self._services, self._scope, open_folder(folder), PageBudget(max_lines, max_bytes), by)

    # Parts, each made when it is first used

    @property
    def slots(self) -> Slots:
        """Slots, such as user.city, hold one value each."""
        from engrain.tiers.semantic import Slots

        return self._get_part("slots", lambda: Slots(self._services, self._scope))

    @property
    def relations(self) -> Relations:
        """Relations between two entities."""
        from engrain.tiers.semantic import Relations

        return self._get_part("relations", lambda: Relations(self._services, self._scope))

    @property
    def working(self) -> ScopedWorkingMemory:
        """The work in progress, with its goal, results and thoughts."""
        from engrain.tiers.scoped_working import ScopedWorkingMemory

        return self._get_part("working", lambda: ScopedWorkingMemory(self._services, self._scope, self._current))

    @property
    def conversation(self) -> ConversationMemory:
        """The messages of the default session, which begins now if there is none."""
        return self._conversation(None)

    @property
    def episodic(self) -> EpisodicMemory:
        """Events: turns, tool calls, decisions, errors and their solutions."""
        from engrain.tiers.episodic import EpisodicMemory

        return self._get_part("episodic", lambda: EpisodicMemory(self._services, self._scope, self._current))

    @property
    def semantic(self) -> SemanticMemory:
        """Facts, preferences, knowledge, relations."""
        from engrain.tiers.semantic import SemanticMemory

        return self._get_part("semantic", lambda: SemanticMemory(self._services, self._scope))

    @property
    def procedural(self) -> ProceduralMemory:
        """Procedures in versions, with their success."""
        from engrain.tiers.procedural import ProceduralMemory

        return self._get_part("procedural", lambda: ProceduralMemory(self._services, self._scope))

    @property
    def sessions(self) -> Sessions:
        """The sessions of this memory."""
        from engrain.tiers.session_lifecycle import Sessions

        return self._get_part("sessions", lambda: Sessions(self._services, self._scope))

    @property
    def tasks(self) -> Tasks:
        """The durable tasks of this memory."""
        from engrain.tasks.manage_tasks import Tasks

        return self._get_part("tasks", lambda: Tasks(self._services, self._scope, lambda: self.working))

    @property
    def records(self) -> ScopedRecords:
        """Opaque bodies by key, for frameworks that keep their own data here."""
        from engrain.tiers.records import ScopedRecords

        return self._get_part("records", lambda: ScopedRecords(self._services, self._scope))

    # The view itself

    @property
    def scope(self) -> Scope:
        """The owner of this memory: (tenant, agent, user)."""
        return self._scope

    @property
    def reads(self) -> tuple[Scope, ...]:
        """The other scopes that `recall` searches."""
        return self._reads

    @property
    def current_session(self) -> str | None:
        """The id of the default session; None before it begins."""
        return self._current.id

    @property
    def store(self) -> Store:
        """The store that this memory opened, with the operator's verbs. A view of somebody else's store has none."""
        if not self._owns:
            raise InvalidInput("this memory is a view: the operator's verbs are on the Store that made it.")
        return self._store

    def close(self) -> None:
        """Close the store that this memory opened. A view of somebody else's store has nothing to close."""
        if self._owns:
            self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Memory({self._scope})"

    @property
    def _services(self) -> Services:
        return self._store.services

    @property
    def _current(self) -> CurrentSession:
        from engrain.tiers.session_lifecycle import CurrentSession

        return self._get_part("current", lambda: CurrentSession(self._services))

    def _conversation(self, session: str | None) -> ConversationMemory:
        """Return a conversation. That of the default session is cached with what it has read."""
        from engrain.tiers.conversation import ConversationMemory

        name = self._current.resolve(session)
        known: ConversationMemory | None = self._parts.get("conversation")
        if known is None or known.session != name:
            known = ConversationMemory(self._services, self._scope, name)
            if name == self._current.id:
                self._parts["conversation"] = known
        return known

    def _record(
        self, messages: Sequence[Any], session: str | None, expect: int | None, request_id: str | None
    ) -> builtins.list[MessageResult]:
        from engrain.ingest.write_messages import RecordOptions, record_messages

        conversation, options = self._conversation(session), RecordOptions(request_id, expect)
        recorded = record_messages(messages, conversation.session, self._scope, self._services, options)
        conversation.follow(recorded)
        return list(recorded.results)

    def _session_id(self, id: str | None) -> str:
        from engrain.tiers.session_lifecycle import new_session

        return new_session(self._services.clock()) if id is None else check_key(id, "session")

    def _find_owner_of(self, id: str) -> SemanticMemory:
        """Return the memory that has the item: this one, or one of those that it reads."""
        from engrain.tiers.semantic import SemanticMemory

        others = (SemanticMemory(self._services, scope) for scope in self._reads)
        return next((part for part in (self.semantic, *others) if part.get(id)), self.semantic)

    def _get_part(self, name: str, make: Callable[[], Part]) -> Part:
        found: Part | None = self._parts.get(name)
        if found is None:
            with self._lock:
                found = self._parts.get(name)
                if found is None:
                    found = self._parts[name] = make()
        return found
