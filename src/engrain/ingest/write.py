"""Turn notes into drafts with words and vectors, and write them in one transaction."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, TypeVar

from engrain.core.clock import Clock, Time, check_duration
from engrain.core.errors import (
    BeingErased,
    Conflict,
    EmbedderFailed,
    InvalidInput,
    StoreError,
    raise_interrupt,
    tolerate,
)
from engrain.core.identity import Scope
from engrain.core.model.items import Draft, Note, Relation, Source, Vectors, Words
from engrain.core.model.messages import Message
from engrain.core.model.plans import Add, Applied, Embed, Outcome, Plan, Request, describe_request
from engrain.core.model.queries import UnembeddedItem
from engrain.core.rules.own_words import detect_stored_traits
from engrain.core.rules.statements import INSTRUCTION, find_conditions
from engrain.core.text.passages import NamedText, Span, find_statement_spans, index_many, index_words
from engrain.core.text.tokenizer import split_identifier
from engrain.core.validation import check_text
from engrain.ports import Services
from engrain.ports.search import Embedder, find_part_embedder, pin_embedder

if TYPE_CHECKING:
    from engrain.core.secrets.redact import RedactFunction
    from engrain.ports.search import Matrix


# A text of a megabyte has a thousand windows, half a minute of embedding. Beyond this limit only words find the rest.
MAX_WINDOWS = 128
MAX_SENTENCE_TEXT = 300  # characters of a message whose sentences have vectors of their own
BATCH_SIZE = 256

P = ParamSpec("P")
R = TypeVar("R")
_log = logging.getLogger("engrain")


def commit_notes(
    notes: Sequence[Note], scope: Scope, services: Services, request_id: str | None = None, began: int | None = None
) -> Applied:
    """Write all notes in one transaction. Nothing is locked while the texts are embedded."""
    began = services.items.current_time() if began is None else began
    plan = Plan(scope, _build_steps(notes, services), request_id, began=began)
    return _find_answer(plan, services) or services.items.apply(_embed_plan(plan, services))


@dataclass(frozen=True, slots=True)
class NoteRequest:
    """A checked note of some scope."""

    note: Note
    scope: Scope
    request_id: str | None = None


def commit_each(requests: Sequence[NoteRequest], services: Services) -> list[Applied | Exception]:
    """Write each note on its own, of any scopes: the answer or the error of each. All are embedded in one call."""
    began = services.items.current_time()

    def build(one: NoteRequest) -> Plan | Applied:
        plan = Plan(one.scope, _build_steps([one.note], services), one.request_id, began=began)
        return _find_answer(plan, services) or plan

    built = [capture_error(build, one) for one in requests]
    new = [one for one in built if isinstance(one, Plan)]
    embedded = iter(_embed_each(new, services))
    complete = [next(embedded) if isinstance(one, Plan) else one for one in built]
    answers = iter(services.items.apply_many([one for one in complete if isinstance(one, Plan)]))
    return [next(answers) if isinstance(one, Plan) else one for one in complete]


def capture_error(call: Callable[P, R], *arguments: P.args, **named: P.kwargs) -> R | Exception:
    """Call it, and return its value or its error: for one of several whose others must not fail with it."""
    try:
        return call(*arguments, **named)
    except Exception as exc:  # noqa: BLE001  # the caller raises it where it belongs
        return exc


def _embed_each(plans: Sequence[Plan], services: Services) -> list[Plan | Exception]:
    together = capture_error(_embed_plans, plans, services)
    if not isinstance(together, Exception):
        return list(together)
    return [capture_error(_embed_plan, plan, services) for plan in plans]


def compute_expiry(clock: Clock, expires_at: Time | None, ttl: timedelta | float | None) -> Time | None:
    if ttl is None:
        return expires_at
    if expires_at is not None:
        raise InvalidInput("remember takes expires_at= or ttl=, not both.")
    return clock() + check_duration(ttl, "ttl")


def purge_or_log(services: Services) -> None:
    """Remove the bytes of forgotten items. A failure is only logged: the items are forgotten, and it is repeated."""
    with tolerate(StoreError, report=partial(_log.warning, "bytes of forgotten items are still to be removed: %s")):
        services.items.purge()


def commit_batches(
    notes: Sequence[Note],
    scope: Scope,
    services: Services,
    request_id: str | None,
    done: Callable[[int], None],
    began: int | None = None,
) -> list[Outcome]:
    """Write notes in batches of one transaction each. A batch is written while the next one is embedded."""
    began = services.items.current_time() if began is None else began
    outcomes: list[Outcome] = []
    with ThreadPoolExecutor(1, thread_name_prefix="engrain-write") as pool:
        waiting: Future[Applied] | None = None
        for number, start in enumerate(range(0, len(notes), BATCH_SIZE)):
            part = None if request_id is None else f"{request_id}\x1f{number}"
            plan = Plan(scope, _build_steps(notes[start : start + BATCH_SIZE], services), part, began=began)
            first = _find_answer(plan, services)
            plan = plan if first else _embed_plan(plan, services)
            # The previous batch must have succeeded, or a session's messages would change their order.
            outcomes += _collect_outcomes(waiting, done)
            waiting = pool.submit(_apply_new, plan, first, services)
        return [*outcomes, *_collect_outcomes(waiting, done)]


def _build_steps(notes: Sequence[Note], services: Services) -> tuple[Add, ...]:
    """Build steps without vectors."""
    redacted = [redact_note(note, services.redact) for note in notes]
    return tuple(
        Add(_make_draft(note, words), note.request_id)
        for note, words in zip(redacted, index_many([name_text(note) for note in redacted]), strict=True)
    )


def _find_answer(plan: Plan, services: Services) -> Applied | None:
    """Return the first answer to the plan's request, so that a repeat embeds nothing. Its transaction asks again."""
    if plan.request_id is None:
        return None
    return services.items.answer(plan.scope, Request(plan.request_id, describe_request(plan.steps)))


def _apply_new(plan: Plan, first: Applied | None, services: Services) -> Applied:
    return first or services.items.apply(plan)


def _embed_plan(plan: Plan, services: Services) -> Plan:
    return _embed_plans([plan], services)[0]


def _embed_plans(plans: Sequence[Plan], services: Services) -> list[Plan]:
    """Return plans of additions with their vectors, embedded in one call. A note that is known needs none."""
    new = [
        step
        for plan in plans
        for step in plan.steps
        if isinstance(step, Add) and not is_known(step, plan.scope, services)
    ]
    drafts = add_vectors([step.draft for step in new], services.embedder)
    embedded = {id(step): Add(draft, step.request_id) for step, draft in zip(new, drafts, strict=True)}
    return [replace(plan, steps=tuple(embedded.get(id(step), step) for step in plan.steps)) for plan in plans]


def is_known(step: Add, scope: Scope, services: Services) -> bool:
    """Tell if the step's own request was answered before."""
    if step.request_id is None:
        return False
    try:
        return services.items.answer(scope, Request(step.request_id, describe_request((step,)))) is not None
    except Conflict:  # raised again where the step is written, unless its words are kept out
        return True


def build_drafts(notes: Sequence[Note], services: Services) -> list[Draft]:
    return add_vectors([build_draft(note, services.redact) for note in notes], services.embedder)


def add_vectors(drafts: Sequence[Draft], embedder: Embedder) -> list[Draft]:
    """Return the drafts with their vectors. Those without any are embedded in one call."""
    if not drafts:
        return []
    bare = [one for one in drafts if one.vectors is None]
    try:
        made = iter(embed_texts([_describe_text(one) for one in bare], embedder))
    except EmbedderFailed as exc:
        # Words find the texts until maintenance embeds them.
        _log.warning("the embedder failed, so %d texts have no vectors yet: %s", len(bare), exc)
        return list(drafts)
    return [one if one.vectors else one.with_vectors(next(made)) for one in drafts]


class TextToEmbed(NamedTuple):
    text: str
    kind: str
    may_order: bool = True  # it may be a standing order


def _describe_text(draft: Draft) -> TextToEmbed:
    role = draft.position.role if draft.position else None
    # The traits of a text say whether a person gives an order in it: see detect_traits.
    ordered = draft.traits & INSTRUCTION or draft.slot is not None or role in ("assistant", "tool")
    return TextToEmbed(prefix_slot(draft.text, draft.slot), draft.kind, bool(ordered))


def embed_texts(texts: Sequence[TextToEmbed], embedder: Embedder) -> list[Vectors]:
    """Return the vectors of each text, all from one model.

    A short message has its own vector, then one for each statement in it; a standing order also has one for its
    condition. Every other text has one for each window.
    """
    embedder = pin_embedder(embedder)
    sentences = _embed_sentences([one.text for one in texts if one.kind == "message"], embedder)
    pieces = []
    for text, kind, may_order in texts:
        windows = [] if text in sentences else split_windows(text, kind, embedder)
        pieces.append(windows + find_conditions(text) if may_order else windows)
    raw = iter(embedder.embed([piece for some in pieces for piece in some], "document"))
    key = embedder.model.key
    return [
        Vectors(key, tuple(row.tobytes() for row in (*sentences.get(text, ()), *islice(raw, len(some)))))
        for (text, _, _), some in zip(texts, pieces, strict=True)
    ]


def find_sentences(text: str) -> list[Span]:
    """Return the statements of a message that have vectors of their own."""
    return find_statement_spans(text) if len(text) <= MAX_SENTENCE_TEXT else []


def _embed_sentences(texts: Sequence[str], embedder: Embedder) -> dict[str, Matrix]:
    """Return the vectors of those texts that are short and have several sentences, if the embedder can."""
    parts = find_part_embedder(embedder)
    if parts is None:
        return {}
    spans = {text: found for text in dict.fromkeys(texts) if (found := find_sentences(text))}
    try:
        return dict(zip(spans, parts.embed_parts(list(spans), list(spans.values())), strict=True))
    except EmbedderFailed:  # the whole texts are tried once more
        return {}


def prefix_slot(text: str, slot: str | None) -> str:
    """Put the slot's name in front of a text to embed: "user city: Quito", since "Quito" alone answers nothing."""
    return f"{split_identifier(slot)}: {text}" if slot else text


def split_windows(text: str, kind: str, embedder: Embedder) -> list[str]:
    """Return the head of a message, but all windows of a document (docs/explanation/ranking.md has the figures)."""
    return embedder.windows(text)[: 1 if kind == "message" else MAX_WINDOWS]


def embed_missing(services: Services, limit: int) -> int:
    """Embed items without vectors of the current model. Return how many."""
    if not limit:
        return 0
    began = services.items.current_time()
    missing = services.items.unembedded(services.embedder.model.key, limit)
    embed_items(services, missing, began)
    return len(missing)


def embed_items(services: Services, missing: Sequence[UnembeddedItem], began: int) -> None:
    """Embed all items, or none if the embedder fails. `began` is the store's moment before they were read."""
    texts = [TextToEmbed(prefix_slot(one.text, one.slot), one.kind) for one in missing]
    vectors = embed_texts(texts, services.embedder)
    steps: dict[Scope, list[Embed]] = {}
    for one, made in zip(missing, vectors, strict=True):
        steps.setdefault(one.scope, []).append(Embed(one.id, one.hash, made))
    for scope, some in steps.items():
        try:
            services.items.apply(Plan(scope, tuple(some), began=began))
        except BeingErased:
            _log.debug("vectors were dropped: their texts were erased meanwhile")


def finish_forgetting(gone: Sequence[str], marked: Sequence[str], scope: Scope, services: Services) -> bool:
    """Remove the bytes of forgotten items, and their episodes from a separate store; embed the cut messages again.

    False if something is left: maintenance repeats it. The items are forgotten, so no failure may look like an error.
    """

    def remove_episodes() -> None:
        if services.episodes is not None and not services.same_store:
            services.episodes.remove(scope, [*gone, *marked])

    done = True
    for clean in (services.items.purge, remove_episodes, partial(embed_missing, services, len(marked))):
        try:
            done = clean() is not False and done
        except EmbedderFailed as exc:
            _log.warning("%d texts are without vectors for now: %s", len(marked), exc)
        except StoreError as exc:
            raise_interrupt(exc)
            _log.warning("forgetting is done, but its cleanup is not, and maintenance will retry: %s", exc)
            done = False
    return done


def build_draft(note: Note, redact: RedactFunction | None = None) -> Draft:
    """Build a draft from a checked note, redacted and indexed by words, but without vectors."""
    note = redact_note(note, redact)
    return _make_draft(note, index_words(*name_text(note)))


def name_text(note: Note) -> NamedText:
    return note.text, note.position.speaker if note.position else None, note.slot


def _make_draft(note: Note, words: Words) -> Draft:
    return Draft(
        text=note.text,
        kind="message" if note.position else "relation" if note.relation else "fact",
        importance=note.importance,
        slot=note.slot,
        metadata=note.metadata or {},
        source=note.source if isinstance(note.source, Source) else Source(),
        position=note.position,
        occurred_at=note.occurred_at,  # type: ignore[arg-type]  # core.notes.checked made it a datetime
        expires_at=note.expires_at,  # type: ignore[arg-type]
        relation=note.relation,
        words=words,
        traits=detect_stored_traits(note.text, note.position.role if note.position else None),
        derived=note.derived,
    )


def _collect_outcomes(waiting: Future[Applied] | None, done: Callable[[int], None]) -> tuple[Outcome, ...]:
    if waiting is None:
        return ()
    outcomes = waiting.result().outcomes
    done(len(outcomes))
    return outcomes


def redact_note(note: Note, redact: RedactFunction | None) -> Note:
    """Redact a note's text, metadata and relation. Slot, source, session and speaker are keys and stay."""
    if redact is None:
        return note
    relation = note.relation
    if relation is not None:
        relation = Relation(*(redact(part) for part in (relation.subject, relation.relation, relation.object)))
    text = check_text(redact(note.text))
    return replace(note, text=text, metadata=redact_json(note.metadata, redact), relation=relation)


def redact_json(value: Any, redact: RedactFunction | None) -> Any:
    """Redact every string in a JSON value."""
    if redact is None:
        return value
    from engrain.core.secrets.redact import redact_json

    return redact_json(value, redact)


def redact_message(message: Message, redact: RedactFunction | None) -> Message:
    """Redact a message before anything is derived from it, so that citations point into the stored words."""
    if redact is None:
        return message
    calls = tuple(
        replace(call, arguments=redact_json(call.arguments, redact), malformed=redact_json(call.malformed, redact))
        for call in message.calls
    )
    return replace(message, text=redact(message.text), calls=calls, metadata=redact_json(message.metadata, redact))
