"""Play a script of sessions through a fresh memory, and score what was kept, replaced, forgotten and answered."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal

import orjson

from engrain.core.clock import check_time
from engrain.core.errors import InvalidInput, UnknownKey
from engrain.core.text.tokenizer import tokenize
from engrain.core.validation import parse_strict
from engrain.memory import Store
from engrain.ports.plain_files import read_plain_text

if TYPE_CHECKING:
    from engrain.core.model.items import Item
    from engrain.memory import Memory
    from engrain.ports.search import Embedder


MAX_LINE_BYTES = 1_000_000
MAX_SCRIPT_BYTES = 256_000_000
ROLES = ("user", "assistant", "system", "tool")


@dataclass(frozen=True, slots=True)
class Begin:
    """A new, empty memory."""

    id: str


@dataclass(frozen=True, slots=True)
class Expected:
    """A statement that must become a fact. `text` is a part of its message, `replaces` the id of the older one."""

    id: str
    text: str
    replaces: str | None = None


@dataclass(frozen=True, slots=True)
class ScriptMessage:
    """A message, the facts that must come from it, those that may, and the ids of facts that it asks to forget."""

    id: str
    session: str
    role: str
    text: str
    at: datetime | None
    keeps: tuple[Expected, ...]
    may: tuple[str, ...]
    forgets: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ScriptQuestion:
    """A question: one of `answers` must be in the prompt, none of `stale` before it, all of `always` beside it.

    `empty`: the question belongs to no memory, and nothing should be found.
    """

    id: str
    text: str
    kind: str
    answers: tuple[str, ...]
    stale: tuple[str, ...]
    always: tuple[str, ...]
    empty: bool


@dataclass(frozen=True, slots=True)
class Lines:
    """Texts that must, and must not, be in the user's profile (`where` is "profile") or among the current facts."""

    id: str
    where: str
    true: tuple[str, ...]
    false: tuple[str, ...]


Step = Begin | ScriptMessage | ScriptQuestion | Lines


def read_script(path: Path) -> list[Step]:
    """Read and check a script. InvalidInput names the line."""
    steps: list[Step] = []
    known: set[str] = set()  # ids of what was said so far, in the memory that is played
    for number, line in enumerate(read_plain_text(path, MAX_SCRIPT_BYTES).splitlines(), 1):
        if not line.strip():
            continue
        where = f"{path.name}, line {number:,}"
        if len(line) > MAX_LINE_BYTES:
            raise InvalidInput(f"{where}: a record has at most {MAX_LINE_BYTES:,} characters.")
        try:
            record = parse_strict(line.encode())
        except orjson.JSONDecodeError as exc:
            raise InvalidInput(f"{where} is not JSON: {exc}.") from exc
        if not isinstance(record, dict):
            raise InvalidInput(f'{where}: a record is an object, such as {{"type": "message", …}}.')
        for step in _parse_record(_Record(record, where), len(steps)):
            _check_references(step, known, where)
            steps.append(step)
    if not any(isinstance(step, ScriptMessage) for step in steps):
        raise InvalidInput(f"{path} has no message. See: engrain evaluate --help.")
    return steps


def _check_references(step: Step, known: set[str], where: str) -> None:
    """Refuse a reference to something that nobody said before: a misspelt id would not be scored."""
    if isinstance(step, Begin):
        known.clear()
    if not isinstance(step, ScriptMessage):
        return
    for expectation in step.keeps:
        if expectation.replaces is not None and expectation.replaces not in known:
            raise InvalidInput(
                f"{where}: {expectation.id!r} replaces {expectation.replaces!r}, which no message before keeps."
            )
        known.add(expectation.id)
    for id in step.forgets:
        if id not in known:
            raise InvalidInput(f"{where}: the message forgets {id!r}, which no message before keeps.")


class _Record:
    """A record of the file, with checked access to its fields."""

    def __init__(self, fields: Mapping[str, Any], where: str) -> None:
        self._fields = fields
        self.where = where

    def text(self, name: str, default: str | None = None) -> str:
        value = self._fields.get(name, default)
        if value is None:
            raise InvalidInput(f"{self.where}: {name!r} is missing. It must be a text.")
        if not isinstance(value, str):
            raise InvalidInput(f"{self.where}: {name!r} must be a text, not {value!r:.80}.")
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        value = self._fields.get(name, [])
        if not isinstance(value, list) or not all(isinstance(text, str) and text for text in value):
            raise InvalidInput(f"{self.where}: {name!r} must be a list of texts, not {value!r:.80}.")
        return tuple(value)

    def records(self, name: str) -> Iterator[_Record]:
        value = self._fields.get(name, [])
        if not isinstance(value, list) or not all(isinstance(record, dict) for record in value):
            raise InvalidInput(f"{self.where}: {name!r} must be a list of objects.")
        return (_Record(record, self.where) for record in value)

    def time(self, name: str) -> datetime | None:
        value = self._fields.get(name)
        return None if value is None else check_time(value, f"{self.where}: {name!r}")

    def flag(self, name: str) -> bool:
        return self._fields.get(name) is True

    def optional(self, name: str) -> str | None:
        return None if self._fields.get(name) is None else self.text(name)


def _parse_record(record: _Record, number: int) -> list[Step]:
    kind = record.text("type", "")
    if kind not in _PARSERS:
        known = ", ".join(_PARSERS)
        raise UnknownKey(f"{record.where}: unknown type {kind!r}. Known: {known}.")
    parse = _PARSERS[kind]
    return [parse(record, record.text("id", f"{number}"))] if parse else []


def _parse_message(record: _Record, id: str) -> ScriptMessage:
    role, text = record.text("role", "user"), record.text("text")
    if role not in ROLES:
        raise InvalidInput(f"{record.where}: role must be one of {', '.join(ROLES)}, not {role!r}.")
    keeps = tuple(
        Expected(one.text("id", f"{id}.{number}"), one.text("text"), one.optional("replaces"))
        for number, one in enumerate(record.records("keeps"))
    )
    for span in (*(expectation.text for expectation in keeps), *record.texts("may")):
        if span not in text:
            raise InvalidInput(f"{record.where}: {span!r:.80} is not a part of the message.")
    return ScriptMessage(
        id, record.text("session", "1"), role, text, record.time("at"), keeps, record.texts("may"),
        record.texts("forgets"),
    )  # fmt: skip


def _parse_question(record: _Record, id: str) -> ScriptQuestion:
    answers, empty = record.texts("answers"), record.flag("empty")
    if not answers and not empty and not record.texts("always"):
        raise InvalidInput(f'{record.where}: a question needs "answers", or "empty": true.')
    return ScriptQuestion(
        id, record.text("text"), record.text("kind", "any"), answers, record.texts("stale"), record.texts("always"),
        empty,
    )  # fmt: skip


def _parse_lines(where: str) -> Callable[[_Record, str], Step]:
    return lambda record, id: Lines(id, where, record.texts("true"), record.texts("false"))


_PARSERS: Mapping[str, Callable[[_Record, str], Step] | None] = {
    "memory": lambda _, id: Begin(id),
    "session": None,  # a message names its session
    "message": _parse_message,
    "question": _parse_question,
    "profile": _parse_lines("profile"),
    "facts": _parse_lines("facts"),
    "note": None,
}


# A statement counts as kept if its facts hold this share of its words. Fewer words are a clipped fact.
MIN_COVERED = 0.6
# Two hits say the same if the shorter one has this share of its words in the longer one.
MIN_REPEATED = 0.9
_MARKED = re.compile(r"held until|\(earlier|, earlier|; earlier")
_QUOTED = re.compile(r'^(?:- |  ).*?"((?:[^"\\]|\\.)*)"')  # the text of a line of the prompt
_STEP = timedelta(seconds=1)

Progress = Callable[[str, int, int], None]


@dataclass(slots=True)
class Tally:
    """Counts the right ones of those tried. `hits` and `misses` name them."""

    right: int = 0
    of: int = 0
    hits: list[str] = field(default_factory=list)
    misses: list[str] = field(default_factory=list)

    def count(self, right: bool, name: str) -> None:
        self.of += 1
        self.right += right
        (self.hits if right else self.misses).append(name)


# What each measure counts, and whether it should be high or low.
MEASURES: Mapping[str, tuple[str, Literal["high", "low"]]] = {
    "kept": ("statements that became a fact", "high"),
    "clipped": ("facts that hold only a part of their statement", "low"),
    "false_facts": ("messages with nothing to keep that left a fact", "low"),
    "extra_facts": ("facts from parts of a message that nobody listed", "low"),
    "replaced": ("older facts that stopped being current", "high"),
    "forgotten": ("facts that are gone after a request to forget", "high"),
    "answers": ("questions with the answer in the prompt", "high"),
    "current": ("questions with no stale value first, in the prompt", "high"),
    "found": ("questions with the answer among the hits of recall", "high"),
    "fresh": ("questions with no stale value first, among the hits", "high"),
    "always": ("standing wishes in the prompt", "high"),
    "empty": ("questions about something else without a hit", "high"),
    "true_lines": ("lines that the profile or the facts should have", "high"),
    "false_lines": ("lines that they should not have", "low"),
    "repeats": ("hits that only repeat another hit", "low"),
    "repeated_lines": ("lines of the prompt that only repeat another line", "low"),
}


@dataclass(slots=True)
class Report:
    """The MEASURES of one script."""

    kept: Tally = field(default_factory=Tally)
    clipped: Tally = field(default_factory=Tally)
    false_facts: Tally = field(default_factory=Tally)
    extra_facts: Tally = field(default_factory=Tally)
    replaced: Tally = field(default_factory=Tally)
    forgotten: Tally = field(default_factory=Tally)
    answers: Tally = field(default_factory=Tally)
    current: Tally = field(default_factory=Tally)
    found: Tally = field(default_factory=Tally)
    fresh: Tally = field(default_factory=Tally)
    always: Tally = field(default_factory=Tally)
    empty: Tally = field(default_factory=Tally)
    true_lines: Tally = field(default_factory=Tally)
    false_lines: Tally = field(default_factory=Tally)
    repeats: Tally = field(default_factory=Tally)
    repeated_lines: Tally = field(default_factory=Tally)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def add_reports(reports: Iterable[Report]) -> Report:
    """Return one report with the counts of all."""
    total = Report()
    for report in reports:
        for name in MEASURES:
            tally, more = getattr(total, name), getattr(report, name)
            tally.right += more.right
            tally.of += more.of
            tally.hits += more.hits
            tally.misses += more.misses
    return total


def evaluate_files(
    paths: Sequence[Path], embedder: Embedder | None = None, *, progress: Progress = lambda *_: None
) -> dict[str, Report]:
    """Evaluate each script in a store of its own."""
    scripts = {path: read_script(path) for path in paths}
    done, total = 0, sum(map(len, scripts.values()))
    reports: dict[str, Report] = {}
    for path, steps in scripts.items():
        with TemporaryDirectory(prefix="engrain-evaluate-") as folder:
            clock = ScriptClock()
            with Store(Path(folder) / "e.db", embedder=embedder, clock=clock) as store:
                player = Player(store, clock)
                for step in steps:
                    player.play(step)
                    done += 1
                    progress(path.name, done, total)
                player.end_session()
        reports[str(path)] = player.report
    return reports


class ScriptClock:
    """Tells the time of the script, a second later at every message."""

    def __init__(self) -> None:
        self.now = datetime(2026, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def advance(self, to: datetime | None) -> None:
        self.now = max(self.now + _STEP, to or self.now)


class Player:
    """Plays the steps of a script, and scores them."""

    def __init__(self, store: Store, clock: ScriptClock) -> None:
        self.report = Report()
        self._store, self._clock = store, clock
        self._begin("script")

    def _begin(self, user: str) -> None:
        self._memory: Memory = self._store.memory(user=user)
        self._session: str | None = None
        self._stated: dict[str, Expected] = {}
        self._facts: dict[str, list[str]] = {}  # ids of the items that hold an expected fact
        self._said: dict[str, str] = {}  # ids of the messages that state it

    def play(self, step: Step) -> None:
        if isinstance(step, ScriptMessage):
            self._play_message(step)
        elif isinstance(step, ScriptQuestion):
            self.end_session()
            self._ask(step)
        elif isinstance(step, Lines):
            self.end_session()
            self._check_lines(step)
        elif isinstance(step, Begin):
            self.end_session()
            self._begin(step.id)

    def end_session(self) -> None:
        if self._session is not None:
            self._memory.end_session()
            self._session = None

    def _play_message(self, step: ScriptMessage) -> None:
        self._clock.advance(step.at)
        if self._session != step.session:
            self.end_session()
            self._memory.start_session(step.session)
            self._session = step.session
        result = self._memory.add_message(step.role, step.text)
        facts = [item for id in result.facts if (item := self._memory.get(id)) and item.kind == "fact"]
        if step.role == "user":
            self._score_facts(step, facts)
        for expectation in step.keeps:
            self._stated[expectation.id] = expectation
            self._said[expectation.id] = result.id
            stating = (item.id for item in facts if _share(expectation.text, [item.text]) >= MIN_COVERED)
            self._facts[expectation.id] = list(stating)
            if expectation.replaces in self._stated:
                self._score_replaced(expectation)
        for id in step.forgets:
            self._score_forgotten(id, step)

    def _score_facts(self, step: ScriptMessage, facts: Sequence[Item]) -> None:
        report, texts = self.report, [item.text for item in facts]
        for expectation in step.keeps:
            covered = _share(expectation.text, texts)
            report.kept.count(covered >= MIN_COVERED, f"{step.id}: {expectation.text}")
            if covered:
                report.clipped.count(covered < MIN_COVERED, f"{step.id}: {texts}")
        listed = [*(expectation.text for expectation in step.keeps), *step.may]
        if not listed:
            report.false_facts.count(bool(texts), f"{step.id}: {texts}")
        for text in texts if listed else ():
            report.extra_facts.count(not any(_share(span, [text]) for span in listed), f"{step.id}: {text}")

    def _score_replaced(self, new: Expected) -> None:
        """The old fact is no longer current. A fact that was never kept is not counted."""
        old = self._facts.get(new.replaces or "", [])
        if old:
            current = {item.id for item in self._list_current()}
            self.report.replaced.count(current.isdisjoint(old), f"{new.id}: {self._stated[new.replaces or ''].text}")

    def _score_forgotten(self, id: str, step: ScriptMessage) -> None:
        if id not in self._stated:
            return
        wanted = self._stated[id].text.casefold()
        texts = [item.text for item in self._list_current()]
        message = self._memory.get(self._said[id])
        texts += [message.text] if message else []
        gone = not any(wanted in text.casefold() for text in texts)
        self.report.forgotten.count(gone, f"{step.id}: {self._stated[id].text}")

    def _list_current(self) -> list[Item]:
        return self._memory.list({"kind": "fact"}, limit=1_000)

    def _ask(self, step: ScriptQuestion) -> None:
        self._clock.advance(None)
        found, block, report = self._memory.recall(step.text), self._memory.prompt(step.text), self.report
        lines = [line for line in block.splitlines() if _QUOTED.search(line)]
        if step.empty:
            report.empty.count(not found, f"{step.id}: {step.text} -> {[hit.text for hit in found][:2]}")
            return
        if step.answers:
            # The question itself is part of the prompt, and answers nothing.
            report.answers.count(_holds(block.partition("\n")[2], step.answers), f"{step.id}: {step.text}")
            report.found.count(_holds(str(found), step.answers), f"{step.id}: {step.text}")
        if step.stale:
            report.fresh.count(_is_fresh(map(str, found), step), f"{step.id}: {step.text}")
            report.current.count(_is_fresh(lines, step), f"{step.id}: {step.text}")
        for wish in step.always:
            report.always.count(_holds(block, [wish]), f"{step.id}: {wish}")
        for text, others in _pair_with_others([hit.text for hit in found]):
            report.repeats.count(_repeats(text, others), f"{step.id}: {text}")
        quoted = [match[1] for line in lines if (match := _QUOTED.search(line))]
        for text, others in _pair_with_others(quoted):
            report.repeated_lines.count(_repeats(text, others), f"{step.id}: {text}")

    def _check_lines(self, step: Lines) -> None:
        if step.where == "profile":
            texts = [item.text for item in self._memory.start_session("profile").profile]
            self._memory.end_session()
        else:
            texts = [item.text for item in self._list_current()]
        for wanted in step.true:
            self.report.true_lines.count(_holds("\n".join(texts), [wanted]), f"{step.id}: {wanted}")
        for unwanted in step.false:
            self.report.false_lines.count(_holds("\n".join(texts), [unwanted]), f"{step.id}: {unwanted}")


def _share(wanted: str, texts: Iterable[str]) -> float:
    """Return the share of the words that the texts hold, in whatever order."""
    words = tokenize(wanted)
    available = {word for text in texts for word in tokenize(text)}
    return sum(word in available for word in words) / len(words) if words else 0.0


def _holds(text: str, wanted: Iterable[str]) -> bool:
    folded = text.casefold()
    return any(word.casefold() in folded for word in wanted)


def _is_fresh(lines: Iterable[str], step: ScriptQuestion) -> bool:
    """No line with a stale value comes before the first with an answer, unless it is marked as older."""
    for line in lines:
        if _holds(line, step.answers):
            return True
        if _holds(line, step.stale) and not _MARKED.search(line):
            return False
    return True


def _pair_with_others(texts: Sequence[str]) -> list[tuple[str, list[str]]]:
    return [(text, [*texts[:n], *texts[n + 1 :]]) for n, text in enumerate(texts)]


def _repeats(text: str, others: Iterable[str]) -> bool:
    """The text only says what another, longer or equal one says."""
    return any(len(other) >= len(text) and _share(text, [other]) >= MIN_REPEATED for other in others)
