"""The routes of the HTTP API: method, path, right and verb of each, as server, client and docs use them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, get_args

Right = Literal["read", "write", "erase", "operate"]
Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
RIGHTS: tuple[Right, ...] = get_args(Right)

# Names a default session and a working memory, as one Memory object has them in Python.
VIEW_HEADER = "Engrain-View"
SCOPE_HEADERS: Mapping[str, str] = {"tenant": "Engrain-Tenant", "agent": "Engrain-Agent", "user": "Engrain-User"}
# Scopes that recall searches as well, each as a query string: agent=team&tenant=acme, user=bo, none
READS_HEADER, NO_OWNER = "Engrain-Reads", "none"
# The answer of `export`, whose body is the file.
EXPORT_HEADER = "Engrain-Export"
IDEMPOTENCY_HEADER = "Idempotency-Key"

# Who the resident process of a store is; only on its unix socket.
RESIDENT_PATH = "/resident"

_PLACEHOLDER = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True, eq=False)
class Route:
    """One verb under one method and path.

    `verb` is dotted from a Memory (`slots.get`), from a Store (`store.hold`), from the conversation of the session in
    the path (`conversation.add`), or from the server itself (`server.scope`). Values in the path have the names of the
    verb's parameters, or are renamed by `renamed`. Other parameters are in the query of GET and DELETE, else in the
    JSON body; those in `without` are not offered.

    The verb's value is the JSON answer: under the key `answer`, or, if that is empty, with its own fields. `text` adds
    str() of it. None is 204 for a verb without a value, and with `missing` it is 404. A `heavy` verb may take minutes.
    """

    method: Method
    path: str
    right: Right
    verb: str
    answer: str = ""
    text: bool = False
    missing: bool = False
    heavy: bool = False
    without: tuple[str, ...] = ()
    renamed: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def path_names(self) -> tuple[str, ...]:
        return tuple(_PLACEHOLDER.findall(self.path))

    @property
    def whole_store(self) -> bool:
        """True if the verb may see every memory: it needs a key of the whole store."""
        return self.path.startswith("/v1/store/")

    @property
    def in_query(self) -> bool:
        return self.method in ("GET", "DELETE")

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """Match the percent-encoded path, so that a name may contain a slash."""
        parts = [re.escape(part) for part in _PLACEHOLDER.split(self.path)[::2]]
        return re.compile("([^/]+)".join(parts))


KNOWLEDGE = (
    Route("POST", "/v1/remember", "write", "remember", "id"),
    Route("POST", "/v1/remember_many", "write", "remember_many", "outcomes"),
    Route("POST", "/v1/recall", "read", "recall", text=True),
    Route("POST", "/v1/prompt", "read", "prompt", "text"),
    Route("GET", "/v1/items", "read", "list", "items", without=("where",)),
    Route("POST", "/v1/list", "read", "list", "items"),
    Route("GET", "/v1/items/{id}", "read", "get", missing=True),
    Route("PATCH", "/v1/items/{id}", "write", "update"),
    Route("DELETE", "/v1/items/{id}", "write", "forget", renamed={"id": "what"}),
    Route("POST", "/v1/items/{id}/correct", "write", "correct", "id"),
    Route("GET", "/v1/items/{id}/explain", "read", "explain", text=True),
    Route("POST", "/v1/forget", "write", "forget"),
    Route("GET", "/v1/slots", "read", "slots.list", "items"),
    Route("GET", "/v1/slots/{name}", "read", "slots.get", missing=True),
    Route("GET", "/v1/slots/{name}/history", "read", "slots.history", "items"),
    Route("POST", "/v1/relations", "write", "relations.add", "id"),
    Route("GET", "/v1/relations", "read", "relations.list", "items"),
    Route("GET", "/v1/relations/about/{entity}", "read", "relations.about", "items"),
    Route("POST", "/v1/semantic/learn", "write", "semantic.learn", "id"),
    Route("POST", "/v1/semantic/consolidate", "write", "semantic.consolidate", heavy=True),
    Route("POST", "/v1/semantic/all_valid", "read", "semantic.all_valid", "valid"),
    Route("GET", "/v1/semantic/change_number", "read", "semantic.change_number", "number"),
)

SESSIONS = (
    Route("POST", "/v1/start_session", "write", "start_session", text=True),
    Route("POST", "/v1/end_session", "write", "end_session", "end"),
    Route("GET", "/v1/current_session", "read", "server.current_session", "session"),
    Route("POST", "/v1/conversation", "write", "server.begin_conversation", "session"),
    Route("POST", "/v1/add_message", "write", "add_message"),
    Route("POST", "/v1/add_messages", "write", "add_messages", "messages"),
    Route("GET", "/v1/profile", "read", "sessions.collect_profile", "items"),
    Route("GET", "/v1/sessions", "read", "sessions.list", "sessions"),
    Route("POST", "/v1/sessions/{session}/start", "write", "sessions.start", text=True),
    Route("POST", "/v1/sessions/{session}/end", "write", "sessions.end"),
    Route("GET", "/v1/sessions/{session}/messages", "read", "sessions.messages", "messages"),
    Route("POST", "/v1/sessions/{session}/add", "write", "conversation.add", "id"),
    Route("POST", "/v1/sessions/{session}/add_many", "write", "conversation.add_many", "ids"),
    Route("GET", "/v1/sessions/{session}/length", "read", "conversation.__len__", "length"),
    Route("GET", "/v1/sessions/{session}/window", "read", "conversation.window"),
    Route("GET", "/v1/sessions/{session}/messages_for_llm", "read", "conversation.messages_for_llm", "messages"),
    Route("GET", "/v1/sessions/{session}/system_for_llm", "read", "conversation.system_for_llm", "text"),
    Route("POST", "/v1/sessions/{session}/search", "read", "conversation.search", "messages"),
    Route("GET", "/v1/sessions/{session}/summary", "read", "conversation.summary", "summary"),
    Route("POST", "/v1/sessions/{session}/summarize", "write", "conversation.summarize", "summary"),
    Route("POST", "/v1/sessions/{session}/clear", "write", "conversation.clear"),
    Route("GET", "/v1/sessions/{session}/export", "read", "conversation.export", "transcript"),
    Route("POST", "/v1/sessions/{session}/load", "write", "conversation.load"),
)

WORKING = (
    Route("GET", "/v1/working", "read", "working.snapshot", "snapshot"),
    Route("PUT", "/v1/working", "write", "working.load"),
    Route("DELETE", "/v1/working", "write", "working.clear"),
    Route("GET", "/v1/working/context", "read", "working.context", "text"),
    Route("GET", "/v1/working/current_work", "read", "working.current_work", "work"),
    Route("GET", "/v1/working/current_tokens", "read", "working.current_tokens", "tokens"),
    Route("POST", "/v1/working/start", "write", "working.start", "id"),
    Route("POST", "/v1/working/step", "write", "working.step"),
    Route("POST", "/v1/working/finish", "write", "working.finish", "id"),
    Route("POST", "/v1/working/set_task", "write", "working.set_task", "id"),
    Route("POST", "/v1/working/set_goal", "write", "working.set_goal"),
    Route("POST", "/v1/working/push_subgoal", "write", "working.push_subgoal"),
    Route("POST", "/v1/working/pop_subgoal", "write", "working.pop_subgoal", "goal"),
    Route("POST", "/v1/working/add_thought", "write", "working.add_thought"),
    Route("POST", "/v1/working/add", "write", "working.add"),
    Route("POST", "/v1/working/compress", "write", "working.compress", "done"),
    Route("POST", "/v1/working/resume_session", "write", "working.resume_session", "resumed"),
    Route("GET", "/v1/working/results/{key}", "read", "working.get_result", "value"),
    Route("PUT", "/v1/working/results/{key}", "write", "working.add_result"),
    Route("GET", "/v1/working/variables/{name}", "read", "working.get_variable", "value", without=("default",)),
    Route("PUT", "/v1/working/variables/{name}", "write", "working.set_variable"),
)

EPISODES_AND_PROCEDURES = (
    Route("POST", "/v1/episodic/record", "write", "episodic.record", "id"),
    Route("POST", "/v1/episodic/record_tool_call", "write", "episodic.record_tool_call", "id"),
    Route("POST", "/v1/episodic/record_decision", "write", "episodic.record_decision", "id"),
    Route("POST", "/v1/episodic/record_error", "write", "episodic.record_error", "id"),
    Route("POST", "/v1/episodic/record_resolution", "write", "episodic.record_resolution", "id"),
    Route("GET", "/v1/episodic/recent", "read", "episodic.recent", "events"),
    Route("GET", "/v1/episodic/important", "read", "episodic.important", "events"),
    Route("GET", "/v1/episodic/{id}/raw", "read", "episodic.raw", "text", missing=True),
    Route("GET", "/v1/episodic/{id}/explain", "read", "episodic.explain", "parts"),
    Route("POST", "/v1/episodic/remove", "write", "episodic.remove", "removed"),
    Route("GET", "/v1/procedures", "read", "procedural.names", "names"),
    Route("POST", "/v1/procedural/learn", "write", "procedural.learn", "id"),
    Route("POST", "/v1/procedural/find", "read", "procedural.find", "procedures"),
    Route("POST", "/v1/procedural/used", "write", "procedural.used", "counted"),
    Route("GET", "/v1/procedures/{name}", "read", "procedural.get", missing=True),
    Route("GET", "/v1/procedures/{name}/versions", "read", "procedural.versions", "procedures"),
    Route("GET", "/v1/procedures/{name}/best", "read", "procedural.best", missing=True),
    Route("GET", "/v1/procedures/{name}/trials", "read", "procedural.trials", "trials"),
)

TASKS = (
    Route("GET", "/v1/tasks", "read", "tasks.list", "tasks"),
    Route("GET", "/v1/tasks/{task}", "read", "tasks.get", missing=True),
    Route("DELETE", "/v1/tasks/{task}", "write", "tasks.remove"),
    Route("GET", "/v1/tasks/{task}/timeline", "read", "tasks.timeline"),
    Route("POST", "/v1/tasks/{task}/resolve", "write", "tasks.resolve"),
    Route("POST", "/v1/tasks/{task}/signal", "write", "tasks.signal", "delivered"),
    Route("POST", "/v1/tasks/{task}/park", "write", "tasks.park"),
    Route("POST", "/v1/tasks/{task}/cancel", "write", "tasks.cancel"),
    Route("POST", "/v1/tasks/{task}/resume", "write", "tasks.resume"),
    Route("GET", "/v1/tasks/{task}/checkpoint", "read", "tasks.load_checkpoint", "state"),
    Route("PUT", "/v1/tasks/{task}/checkpoint", "write", "tasks.checkpoint"),
)

OWNER = (
    Route("GET", "/v1/scope", "read", "server.scope"),
    Route("GET", "/v1/status", "read", "server.status"),
    Route("GET", "/v1/events", "read", "server.events"),
    Route("GET", "/v1/export", "read", "export", heavy=True, without=("path", "overwrite")),
    Route("POST", "/v1/load", "write", "load", heavy=True, without=("path",)),
    Route("POST", "/v1/erase", "erase", "erase", heavy=True, without=("folders",)),
    Route("POST", "/v1/undo", "erase", "store.undo", heavy=True),
    Route("GET", "/v1/memories", "operate", "server.memories", "memories"),
    Route("GET", "/v1/holds", "operate", "store.holds", "holds"),
    Route("POST", "/v1/hold", "operate", "store.hold"),
    Route("POST", "/v1/release", "operate", "store.release"),
    Route("GET", "/v1/audit", "operate", "store.audit", "entries"),
)

WHOLE_STORE = (
    Route("GET", "/v1/store/memories", "operate", "store.memories", "memories"),
    Route("GET", "/v1/store/status", "operate", "store.status", without=("scope",)),
    Route("POST", "/v1/store/status", "operate", "store.status"),
    Route("GET", "/v1/store/holds", "operate", "store.holds", "holds"),
    Route("GET", "/v1/store/audit", "operate", "store.audit", "entries"),
    Route("GET", "/v1/store/verify_audit", "operate", "store.verify_audit"),
    Route("POST", "/v1/store/doctor", "operate", "store.doctor", "checks", heavy=True),
    Route("POST", "/v1/store/maintain", "operate", "store.maintain", text=True, heavy=True),
    Route("POST", "/v1/store/rebuild", "operate", "store.rebuild", "items", heavy=True),
    Route("POST", "/v1/store/prune_tasks", "operate", "tasks.prune", "removed"),
    Route("POST", "/v1/store/resume_erasures", "erase", "store.resume_erasures", "erasures", heavy=True),
    Route("POST", "/v1/store/verify_erasure", "operate", "store.verify_erasure", heavy=True),
)

GROUPS: Mapping[str, tuple[Route, ...]] = {
    "Knowledge": KNOWLEDGE,
    "Sessions and messages": SESSIONS,
    "Working memory": WORKING,
    "Episodes and procedures": EPISODES_AND_PROCEDURES,
    "Durable tasks": TASKS,
    "The memory of one owner": OWNER,
    "The whole store": WHOLE_STORE,
}
ROUTES: tuple[Route, ...] = tuple(route for group in GROUPS.values() for route in group)

# Verbs that have the same route as another one, whose arguments say the same in another form.
SAME_AS: Mapping[str, str] = {
    "semantic.remember": "remember",
    "semantic.remember_many": "remember_many",
    "semantic.get": "get",
    "semantic.list": "list",
    "semantic.correct": "correct",
    "semantic.change": "update",
    "semantic.forget": "forget",
    "semantic.explain": "explain",
    "conversation.last": "sessions.messages",
    "conversation.export_json": "conversation.export",
    "conversation.export_yaml": "conversation.export",
    "procedural.require": "procedural.get",
    "working.version_of": "procedural.get",
    "session": "sessions.start",
    "store.erase": "erase",
    "store.memory": "server.scope",
}
# Verbs that stay in the process that has the store, and why.
NOT_SERVED: Mapping[str, str] = {
    "task": "its steps are functions of the caller",
    "tasks.recover": "it calls a function of the caller",
    "tasks.recover_flow": "it calls a function of the caller",
    "mirror": "it writes to a folder of the server",
    "close": "a client does not close the server's store",
    "store.close": "a client does not close the server's store",
    "store.find_records": "records are bytes of a framework in the process that has the store",
    "store.backup": "it writes to a path of the server",
    "store.copy": "it writes to a path or URL of the server's choice",
    "working.pending": "the server itself asks its model for summaries",
    "working.improve": "the server itself asks its model for summaries",
    "working.refine": "the server itself asks its model for summaries",
    "working.from_snapshot": "PUT /v1/working loads a snapshot",
    "working.clear_erased": "the server does it before each use",
}
