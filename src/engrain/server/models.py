"""The input model of each route, made from the signature of its verb and the types of its parameters."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import cache
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, ValidationError, create_model

from engrain.core.chat.parse import MAX_MESSAGES
from engrain.core.model.procedures import MAX_STEP, MAX_STEPS
from engrain.core.model.recall import Effort
from engrain.core.model.tasks import TaskStatus
from engrain.core.model.working import MAX_GOAL, MAX_TOKENS
from engrain.core.rules.episode_importance import EpisodeKind
from engrain.core.validation import MAX_BATCH, MAX_NAME, MAX_QUERY, MAX_TEXT
from engrain.memory.http_verbs import Verb
from engrain.server import wire_types as wire
from engrain.server.problems import Problem
from engrain.tasks.manage_tasks import Verdict
from engrain.transfer.readers import LoadFormat

MAX_SHOWN_ERRORS = 10
# The error of the same input in Python, by the kind of pydantic's error. The first that is there decides.
ERROR_OF_KIND = {"EmptyText": "EmptyText", "too_long": "TooLarge", "extra_forbidden": "UnknownKey"}
_Names = Annotated[list[wire.Name], Field(max_length=MAX_BATCH)]
_Goal = wire.text(MAX_GOAL)
_MaybeName = wire.optional_text(MAX_NAME)

# The type of each parameter, by its name.
TYPES: Mapping[str, Any] = {
    **dict.fromkeys(("text", "content", "what", "error", "result"), wire.Text),
    **dict.fromkeys(("query", "request"), wire.text(MAX_QUERY)),
    **dict.fromkeys(("task", "work", "goal", "thought"), _Goal),
    **dict.fromkeys(
        ("id", "name", "slot", "session", "speaker", "role", "after", "entity", "subject", "relation", "object"),
        wire.Name,
    ),
    **dict.fromkeys(
        ("task_id", "key", "procedure", "tool", "step", "event", "tenant", "agent", "user"),
        wire.Name,
    ),
    **dict.fromkeys(("prefix", "outcome", "why", "note"), _MaybeName),
    **dict.fromkeys(("importance", "min_importance"), wire.Share),
    **dict.fromkeys(("occurred_at", "expires_at", "as_of", "since"), wire.Time),
    **dict.fromkeys(("ttl", "older_than", "deadline"), wire.Number),
    **dict.fromkeys(("n", "limit"), wire.whole(1, MAX_BATCH)),
    **dict.fromkeys(("value", "payload", "state"), wire.Json),
    **dict.fromkeys(("ids", "shown", "texts"), _Names),
    **dict.fromkeys(
        ("history", "pinned", "keep_source", "items", "success", "failed", "dry_run", "done", "vectors"), wire.Flag
    ),
    **dict.fromkeys(("skip_bad", "other_scope", "facts", "trusted", "reembed", "trust_clock"), wire.Flag),
    "metadata": wire.Metadata,
    "arguments": wire.JsonObject,
    "snapshot": wire.JsonObject,
    "data": wire.JsonObject,
    "where": wire.Filter,
    "source": wire.Name | wire.SourceIn,
    "position": wire.PositionIn,
    "notes": Annotated[list[wire.Note], Field(max_length=MAX_BATCH)],
    "messages": Annotated[list[wire.MessageIn | wire.ApiMessageIn], Field(max_length=MAX_MESSAGES)],
    "budget": wire.whole(0, MAX_TOKENS),
    "expect": wire.whole(0, 2**53),
    "occurrence": wire.whole(0, 10_000_000),
    "effort": Effort,
    "min_relevance": Annotated[float, Field(ge=-1, le=1)],
    "steps": Annotated[list[wire.text(MAX_STEP)], Field(min_length=1, max_length=MAX_STEPS)],  # type: ignore[misc]
    "when": wire.optional_text(MAX_TEXT),
    "cites": list[wire.CitationIn],
    "scope": wire.ScopeIn,
}
# The types of parameters that mean something else in one verb.
TYPES_OF_VERB: Mapping[str, Any] = {
    "recall.n": wire.whole(1, 1_000),
    "forget.what": wire.Name | wire.Filter,
    "add_message.role": wire.Role,
    "conversation.add.role": wire.Role,
    "conversation.messages_for_llm.format": Literal["anthropic", "openai"],
    "conversation.search.n": wire.whole(1, 1_000),
    "working.add.item": wire.Text | wire.BufferItemIn | wire.ChatItemIn,
    "working.add.kind": wire.Name,
    "working.add.speaker": _MaybeName,
    "working.step.thought": wire.optional_text(MAX_GOAL),
    "working.step.action": wire.Text,
    "working.step.result": wire.Json,
    "working.finish.outcome": wire.TextOrEmpty,
    "episodic.record.kind": EpisodeKind,
    "episodic.record_tool_call.result": wire.TextOrEmpty,
    "episodic.record_decision.why": wire.TextOrEmpty,
    "episodic.recent.n": wire.whole(1, 1_000),
    "episodic.important.n": wire.whole(1, 1_000),
    "procedural.find.n": wire.whole(1, 100),
    "procedural.find.goal": wire.text(MAX_QUERY),
    "procedural.get.version": wire.whole(1, 10_000),
    "procedural.trials.limit": wire.whole(1, 10_000),
    "procedural.used.task": wire.Name,
    "semantic.learn.source": wire.Name,
    "sessions.list.limit": wire.whole(1, 10_000),
    "tasks.list.status": list[TaskStatus],
    "tasks.list.limit": wire.whole(1, 100_000),
    "tasks.resolve.outcome": Verdict,
    "tasks.resolve.result": wire.Json,
    "export.format": Literal["jsonl", "markdown"],
    "load.format": LoadFormat,
    "load.source": wire.Name,
    "erase.source": wire.Name,
    "store.undo.source": wire.Name,
    "store.hold.reason": wire.Reason,
    "store.verify_audit.head": wire.LogHead,
    "store.audit.after": wire.whole(0, 1 << 60),
    "store.audit.limit": wire.whole(1, 1_000_000),
    "store.release.reason": wire.Reason | list[wire.Reason],
    "store.verify_erasure.receipt": wire.Text | wire.JsonObject,
}
# Verbs of which at least one argument must be given, and not as null.
WITHOUT_NULL = ("update",)


def build_model(verb: Verb) -> type[BaseModel]:
    """Build the model of the parameters that are in the query or the body."""
    chosen: dict[str, Any] = {}
    for name, parameter in verb.parameters.items():
        kind = TYPES_OF_VERB.get(f"{verb.route.verb}.{name}", TYPES.get(name))
        if kind is None:
            raise TypeError(f"the parameter {name!r} of {verb.route.verb} has no type for the wire.")
        default = ... if parameter.default is inspect.Parameter.empty else _plain_default(parameter.default)
        takes_null = parameter.default is None and verb.route.verb not in WITHOUT_NULL
        chosen[name] = (kind | None if takes_null else kind, default)
    title = "".join(part.title() for part in re.split(r"[._]+", verb.route.verb) if part)
    base = wire.AtLeastOne if verb.route.verb in WITHOUT_NULL else wire.Strict
    return create_model(title, __base__=base, **chosen)


def validate(model: type[BaseModel], values: Any) -> dict[str, Any]:
    """Check the values and return the verb's arguments; Problem 422 names each value that does not fit."""
    if not isinstance(values, dict):
        raise Problem(422, "the body must be a JSON object.", "InvalidInput")
    try:
        checked = model.model_validate(values)
    except ValidationError as exc:
        raise _report_errors(exc) from exc
    return {name: _to_value(getattr(checked, name)) for name in checked.model_fields_set}


def parse_query(model: type[BaseModel], query: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """Convert the texts of a query to the types of the model; a wrong text stays, and `validate` refuses it."""
    known: dict[str, str] = _read_types(model)
    found: dict[str, Any] = {}
    for name, value in query:
        if "\x00" in name + value:
            raise Problem(422, f"{name!r} holds a NUL character, which no text may have.", "BadText")
        kind = known.get(name, "string")
        if kind == "array":
            found.setdefault(name, []).append(value)
        elif name in found:
            raise Problem(422, f"{name} is in the query twice.", "InvalidInput")
        else:
            found[name] = _CONVERTERS[kind](value)
    return found


def _plain_default(value: Any) -> Any:
    if isinstance(value, timedelta):
        return None  # left out, the verb takes its own
    return list(value) if isinstance(value, tuple) else value


def _to_value(value: Any) -> Any:
    if isinstance(value, wire.Strict):
        return value.to_value()
    if isinstance(value, list):
        values = [_to_value(element) for element in value]
        return tuple(values) if value and isinstance(value[0], wire.CitationIn) else values
    return value


def _report_errors(error: ValidationError) -> Problem:
    found = error.errors(include_url=False, include_context=False, include_input=False)
    lines = [{"where": ".".join(map(str, entry["loc"])), "what": entry["msg"]} for entry in found[:MAX_SHOWN_ERRORS]]
    detail = "; ".join(f"{line['where'] or 'the body'}: {line['what']}" for line in lines[:3])
    kinds = {entry["type"] for entry in found}
    name = next((name for kind, name in ERROR_OF_KIND.items() if kind in kinds), "InvalidInput")
    return Problem(422, f"{detail}.", name, more={"values": lines})


@cache
def _read_types(model: type[BaseModel]) -> dict[str, str]:
    """Return the JSON type of each field."""
    properties = model.model_json_schema()["properties"] if model.model_fields else {}
    return {name: _find_type(schema) for name, schema in properties.items()}


def _find_type(schema: Mapping[str, Any]) -> str:
    options = schema.get("anyOf", [schema])
    return next((option["type"] for option in options if option.get("type") not in (None, "null")), "string")


def _convert_integer(text: str) -> Any:
    return int(text) if re.fullmatch(r"-?[0-9]{1,19}", text) else text


def _convert_number(text: str) -> Any:
    return float(text) if re.fullmatch(r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?", text) else text


_CONVERTERS: Mapping[str, Callable[[str], Any]] = {
    "integer": _convert_integer,
    "number": _convert_number,
    "boolean": lambda text: {"true": True, "false": False}.get(text, text),
    "string": lambda text: text,
}
