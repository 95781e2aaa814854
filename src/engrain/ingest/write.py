"""Turn notes into drafts with words and vectors, and write them in one transaction."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from engrain.core.clock import Clock, Time, check_duration
from engrain.core.errors import BeingErased, EmbedderFailed, InvalidInput, StoreError, raise_interrupt, tolerate
from engrain.core.identity import Scope
from engrain.core.model.items import Draft, Note, Relation, Source, Vectors
from engrain.core.model.messages import Message
from engrain.core.model.plans import Add, Applied, Embed, Outcome, Plan
from engrain.core.model.queries import UnembeddedItem
from engrain.core.rules.own_words import detect_stored_traits
from engrain.core.text.passages import index_words
from engrain.core.text.tokenizer import split_identifier
from engrain.core.validation import check_text
from engrain.ports import Services
from engrain.ports.search import Embedder, pin_embedder

if TYPE_CHECKING:
    from engrain.core.secrets.redact import RedactFunction


# A text of a megabyte has a thousand windows, half a minute of embedding. Beyond this limit only words find the rest.
MAX_WINDOWS = 128
BATCH_SIZE = 256

P = ParamSpec("P")
R = TypeVar("R")
_log = logging.getLogger("engrain")


def commit_notes(
    notes: Sequence[Note], scope: Scope, services: Services, request_id: str | None = None, began: int | None = None
) -> Applied:
    """Write all notes in one transaction. Nothing is locked while the texts are embedded."""
    began = services.items.current_time() if began is None else began
    return services.items.apply(Plan(scope, _build_steps(notes, services), request_id, began=began))


@dataclass(frozen=True, slots=True)
class NoteRequest:
    """A checked note of some scope."""

    note: Note
    scope: Scope
    request_id: str | None = None


def commit_each(requests: Sequence[NoteRequest], services: Services) -> list[Applied | Exception]:
    """Write each note on its own, of any scopes: the answer or the error of each. All are embedded in one call."""
    began = services.items.current_time()
    built = [capture_error(build_draft, one.note, services.redact) for one in requests]
    drafts = iter(_add_vectors_to_each([one for one in built if isinstance(one, Draft)], services.embedder))
    complete = [next(drafts) if isinstance(one, Draft) else one for one in built]
    plans = [
        Plan(request.scope, (Add(draft, request.note.request_id),), request.request_id, began=began)
        for request, draft in zip(requests, complete, strict=True)
        if isinstance(draft, Draft)
    ]
    answers = iter(services.items.apply_many(plans))
    return [next(answers) if isinstance(draft, Draft) else draft for draft in complete]


def capture_error(call: Callable[P, R], *arguments: P.args, **named: P.kwargs) -> R | Exception:
    """Call it, and return its value or its error: for one of several whose others must not fail with it."""
    try:
        return call(*arguments, **named)
    except Exception as exc:  # noqa: BLE001  # the caller raises it where it belongs
        return exc


def _add_vectors_to_each(drafts: Sequence[Draft], embedder: Embedder) -> list[Draft | Exception]:
    together = capture_error(add_vectors, drafts, embedder)
    if not isinstance(together, Exception):
        return list(together)
    alone = [capture_error(add_vectors, [draft], embedder) for draft in drafts]
    return [one if isinstance(one, Exception) else one[0] for one in alone]


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
            steps = _build_steps(notes[start : start + BATCH_SIZE], services)
            # The previous batch must have succeeded, or a session's messages would change their order.
            outcomes += _collect_outcomes(waiting, done)
            part = None if request_id is None else f"{request_id}\x1f{number}"
            waiting = pool.submit(services.items.apply, Plan(scope, steps, part, began=began))
        return [*outcomes, *_collect_outcomes(waiting, done)]


def _build_steps(notes: Sequence[Note], services: Services) -> tuple[Add, ...]:
    made = build_drafts(notes, services)
    return tuple(Add(one, note.request_id) for note, one in zip(notes, made, strict=True))


def build_drafts(notes: Sequence[Note], services: Services) -> list[Draft]:
    return add_vectors([build_draft(note, services.redact) for note in notes], services.embedder)


def add_vectors(drafts: Sequence[Draft], embedder: Embedder) -> list[Draft]:
    """Return the drafts with their vectors, embedded in one call."""
    if not drafts:
        return []
    try:
        vectors = embed_texts([(prefix_slot(one.text, one.slot), one.kind) for one in drafts], embedder)
    except EmbedderFailed as exc:
        # Words find the texts until maintenance embeds them.
        _log.warning("the embedder failed, so %d texts have no vectors yet: %s", len(drafts), exc)
        return list(drafts)
    return [replace(one, vectors=rows) for one, rows in zip(drafts, vectors, strict=True)]


def embed_texts(texts: Sequence[tuple[str, str]], embedder: Embedder) -> list[Vectors]:
    """Return the vectors of each (text, kind), all from one model."""
    embedder = pin_embedder(embedder)
    pieces = [split_windows(text, kind, embedder) for text, kind in texts]
    raw = iter(embedder.embed([piece for some in pieces for piece in some], "document"))
    key = embedder.model.key
    return [Vectors(key, tuple(next(raw).tobytes() for _ in some)) for some in pieces]


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
    vectors = embed_texts([(prefix_slot(one.text, one.slot), one.kind) for one in missing], services.embedder)
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
    speaker, role = (note.position.speaker, note.position.role) if note.position else (None, None)
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
        words=index_words(note.text, speaker, note.slot),
        traits=detect_stored_traits(note.text, role),
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
