"""Play a script of sessions through a fresh memory, and score what was kept, replaced, forgotten and answered."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from engrain.bench.scripts import Begin, Expected, Lines, ScriptMessage, ScriptQuestion, Step, read_script
from engrain.core.text.tokenizer import tokenize
from engrain.memory import Store

if TYPE_CHECKING:
    from engrain.core.model.items import Item
    from engrain.memory import Memory
    from engrain.ports.search import Embedder

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


@dataclass(slots=True)
class Report:
    """The measures of one script.

    - kept: statements that became a fact; clipped and false_facts count facts, extra_facts those of no listed part.
    - replaced: an older fact stopped being current when its successor was said.
    - forgotten: facts and messages are gone after a request to forget.
    - answers, current, always: questions whose answer is in the prompt, not after a stale value, and with the standing
      wishes. found, fresh, empty: the same of recall's hits, and questions without a hit where nothing is known.
    - true_lines, false_lines: the profile and the current facts.
    - repeats, repeated_lines: hits and lines of the prompt that only repeat another one.
    """

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
        for one in fields(Report):
            tally, more = getattr(total, one.name), getattr(report, one.name)
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
        for one in step.keeps:
            self._stated[one.id] = one
            self._said[one.id] = result.id
            self._facts[one.id] = [item.id for item in facts if _share(one.text, [item.text])]
            if one.replaces in self._stated:
                self._score_replaced(one)
        for id in step.forgets:
            self._score_forgotten(id, step)

    def _score_facts(self, step: ScriptMessage, facts: Sequence[Item]) -> None:
        report, texts = self.report, [item.text for item in facts]
        for one in step.keeps:
            covered = _share(one.text, texts)
            report.kept.count(covered >= MIN_COVERED, f"{step.id}: {one.text}")
            if covered:
                report.clipped.count(covered < MIN_COVERED, f"{step.id}: {texts}")
        listed = [*(one.text for one in step.keeps), *step.may]
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
    held = {word for text in texts for word in tokenize(text)}
    return sum(word in held for word in words) / len(words) if words else 0.0


def _holds(text: str, wanted: Iterable[str]) -> bool:
    folded = text.casefold()
    return any(one.casefold() in folded for one in wanted)


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
