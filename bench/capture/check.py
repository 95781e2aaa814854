"""Check that every record of the capture sets is well formed and that its references resolve.

Run: python bench/capture/check.py
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
Record = dict[str, Any]
HALVES = ("dev", "heldout")
FURTHER = ("more", "validation", "third", "third-validation", "fourth", "fifth")  # parts of later sets
SET_ASIDE = "Set aside: scored once, never read while rules or weights are made."


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


ASPECTS = words(
    "account achievement address age allergy answer-style architecture birthday budget cause children city command"
    " config contact convention date decision deploy device diet drink education employer food goal health hobby home"
    " instruction job language library manager medication membership music name none other partner pet plan possession"
    " preference price project schedule skill sport status supplier team tool transport trip vehicle version"
    " workplace family school car insurance owner finance habit subscription deadline club volunteering"
)
KEPT_KINDS = words("fact preference instruction decision correction")
KINDS = KEPT_KINDS | words("transient question hypothetical quoted sarcasm smalltalk other")
QUESTION_KINDS = words("direct paraphrase temporal relation task off-topic")
EVENTS = words("prompt answer failed-command command note")
EVENT_KEEPS = words("rule wish decision correction fix command file cause")
CATEGORIES = words("paraphrase detail relation temporal negation multi")
CERTAIN = words("aspect entity topic value last")
# Several or no targets fit, or the sentence only mentions forgetting.
UNSURE = words(
    "several none quoted question idiom reminder negated hypothetical resigned self third other-object code sarcasm"
)


class Report:
    """Problems found so far, and how many records each file holds."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self.counts: Counter[str] = Counter()

    def expect(self, holds: bool, where: str, problem: str) -> None:
        if not holds:
            self.problems.append(f"{where}: {problem}")


def read_records(path: Path, report: Report) -> Iterator[tuple[str, Record]]:
    """Yield the records of a file with their place; the note of a set-aside file is checked and skipped."""
    lines = path.read_text(encoding="utf-8").splitlines()
    set_aside = "heldout" in str(path.relative_to(HERE))
    for number, line in enumerate(lines, 1):
        where = f"{path.relative_to(HERE)}:{number}"
        record = json.loads(line)
        if record.get("type") == "note":
            report.expect(set_aside and number == 1 and record["text"] == SET_ASIDE, where, "unexpected note")
            continue
        report.expect(number > 1 or not set_aside, where, "a set-aside file begins with its note")
        report.counts[str(path.relative_to(HERE))] += 1
        yield where, record


def expect_fields(report: Report, where: str, record: Record, names: str) -> None:
    for name in names.split():
        report.expect(name in record, where, f"lacks {name!r}")


def expect_unique(report: Report, ids: list[str], where: str) -> None:
    for name, times in Counter(ids).items():
        report.expect(times == 1, where, f"id {name!r} is used {times} times")


def contains(texts: list[str], span: str) -> bool:
    return any(span.casefold() in text.casefold() for text in texts)


class Script:
    """One persona's script: sessions and messages read so far, with the facts that they state."""

    def __init__(self, report: Report) -> None:
        self.report = report
        self.ids: list[str] = []
        self.sessions: list[str] = []
        self.said: list[str] = []
        self.facts: set[str] = set()
        self.last_time = ""
        self.users: Counter[str] = Counter()

    def check(self, where: str, record: Record) -> None:
        handler: dict[str, Callable[[str, Record], None]] = {
            "session": self.session,
            "message": self.message,
            "question": self.question,
            "profile": self.profile,
        }
        self.report.expect(record.get("type") in handler, where, f"unknown type {record.get('type')!r}")
        if record.get("type") in handler:
            self.ids.append(record["id"])
            handler[record["type"]](where, record)

    def advance(self, where: str, at: str) -> None:
        self.report.expect(at > self.last_time, where, "time does not advance")
        self.last_time = at

    def session(self, where: str, record: Record) -> None:
        self.sessions.append(record["id"])
        self.advance(where, record["at"])

    def message(self, where: str, record: Record) -> None:
        expect, text = self.report.expect, record["text"]
        expect(record["session"] == self.sessions[-1], where, "message is outside of its session")
        expect(record["role"] in ("user", "assistant"), where, f"unknown role {record['role']!r}")
        self.advance(where, record["at"])
        if record["role"] == "assistant":
            expect(
                not any(record[name] for name in ("keeps", "may", "forgets")),
                where,
                "an assistant's message keeps nothing",
            )
            return
        self.users[record["session"]] += 1
        self.said.append(text)
        for keep in record["keeps"]:
            self.ids.append(keep["id"])
            expect(keep["text"] in text, where, f"not in the message: {keep['text']!r}")
            expect(keep["aspect"] in ASPECTS, where, f"unknown aspect {keep['aspect']!r}")
            expect(bool(keep["about"]), where, "nobody is named in 'about'")
            expect(keep["replaces"] is None or keep["replaces"] in self.facts, where, f"unknown {keep['replaces']!r}")
            self.facts.add(keep["id"])
        for span in record["may"]:
            expect(span in text, where, f"not in the message: {span!r}")
        for fact in record["forgets"]:
            expect(fact in self.facts, where, f"forgets the unknown fact {fact!r}")

    def question(self, where: str, record: Record) -> None:
        expect = self.report.expect
        expect(record["after"] == self.sessions[-1], where, "question does not follow its session")
        expect(record["kind"] in QUESTION_KINDS, where, f"unknown kind {record['kind']!r}")
        empty = record.get("empty", False)
        expect(empty == (record["kind"] == "off-topic"), where, "only off-topic questions expect nothing")
        expect(bool(record["answers"]) != empty, where, "answers and 'empty' disagree")
        for span in [*record["answers"], *record["stale"], *record["always"]]:
            expect(contains(self.said, span), where, f"nobody said {span!r} yet")
        for stale in record["stale"]:
            expect(not contains(record["answers"], stale), where, f"{stale!r} is a part of an answer")

    def profile(self, where: str, record: Record) -> None:
        expect = self.report.expect
        expect(record["after"] == self.sessions[-1], where, "profile does not follow its session")
        for span in [*record["true"], *record["false"]]:
            expect(contains(self.said, span), where, f"nobody said {span!r} yet")
        for span in record["false"]:
            expect(not contains(record["true"], span), where, f"{span!r} is both true and false")


def check_personas(report: Report) -> list[str]:
    ids: list[str] = []
    for path in sorted(HERE.glob("personas/*/*.jsonl")):
        script = Script(report)
        for where, record in read_records(path, report):
            script.check(where, record)
        report.expect(len(script.sessions) == 6, path.name, "a persona has six sessions")
        few = [session for session, count in script.users.items() if count < 12]
        report.expect(not few, path.name, f"fewer than 12 user messages in {few}")
        ids += script.ids
    return ids


def check_sentence(report: Report, where: str, record: Record) -> list[str]:
    expect_fields(report, where, record, "id text keep kind aspect about")
    report.expect(record["kind"] in KINDS, where, f"unknown kind {record['kind']!r}")
    report.expect(record["aspect"] in ASPECTS, where, f"unknown aspect {record['aspect']!r}")
    report.expect(record["keep"] == (record["kind"] in KEPT_KINDS), where, "keep and kind disagree")
    report.expect(
        record["keep"] == (record["about"] is not None), where, "kept sentences, and only they, name a subject"
    )
    return [record["id"]]


def check_change(report: Report, where: str, record: Record) -> list[str]:
    expect_fields(report, where, record, "id lang first later aspect expect old_value new_value question")
    report.expect(record["aspect"] in ASPECTS, where, f"unknown aspect {record['aspect']!r}")
    report.expect(record["expect"] in ("new", "both"), where, f"unknown expectation {record['expect']!r}")
    report.expect(record["old_value"] in record["first"], where, f"not in 'first': {record['old_value']!r}")
    report.expect(record["new_value"] in record["later"], where, f"not in 'later': {record['new_value']!r}")
    return [record["id"]]


def check_forget(report: Report, where: str, record: Record) -> list[str]:
    expect_fields(report, where, record, "id lang messages request targets certain why")
    known = [message["id"] for message in record["messages"]]
    report.expect(2 <= len(known) <= 6, where, f"{len(known)} earlier messages")
    report.expect(set(record["targets"]) <= set(known), where, "a target is not among the messages")
    report.expect(record["why"] in (CERTAIN if record["certain"] else UNSURE), where, f"unknown {record['why']!r}")
    report.expect(not record["certain"] or bool(record["targets"]), where, "certain, and yet nothing is meant")
    return [record["id"], *known]


def check_event(report: Report, where: str, record: Record) -> list[str]:
    expect_fields(report, where, record, "id event keep")
    report.expect(record["event"] in EVENTS, where, f"unknown event {record['event']!r}")
    texts = [record[name] for name in ("text", "command", "output", "then") if name in record]
    report.expect(bool(texts), where, "an event has text or a command")
    for keep in record["keep"]:
        report.expect(keep["kind"] in EVENT_KEEPS, where, f"unknown kind {keep['kind']!r}")
        report.expect(any(keep["text"] in text for text in texts), where, f"not in the event: {keep['text']!r}")
        private = any(keep["text"] in part for text in texts for part in private_parts(text))
        report.expect(not private, where, "a private part is kept")
    return [record["id"]]


def private_parts(text: str) -> list[str]:
    return [part.split("</private>")[0] for part in text.split("<private>")[1:]]


HALF_SETS: dict[str, tuple[int, Callable[[Report, str, Record], list[str]]]] = {
    "sentences": (300, check_sentence),
    "changes": (150, check_change),
    "forget": (100, check_forget),
    "coding-events": (60, check_event),
}


def check_half_sets(report: Report) -> list[str]:
    ids: list[str] = []
    texts: Counter[str] = Counter()
    for name, (size, check) in HALF_SETS.items():
        for path in [HERE / f"{name}-{half}.jsonl" for half in (*HALVES, *FURTHER)]:
            if path.stem.endswith(FURTHER) and not path.exists():
                continue
            if not path.exists():
                report.expect(False, path.name, "is missing")
                continue
            for where, record in read_records(path, report):
                ids += check(report, where, record)
                texts[record.get("text") or record.get("later") or record.get("request") or record["id"]] += 1
            size = 60 if path.stem.endswith(FURTHER) else size
            report.expect(report.counts[path.name] >= size, path.name, f"holds fewer than {size} records")
    for text, times in texts.items():
        # Requests such as "forget that" may be worded alike: their messages differ.
        report.expect(times == 1 or len(text) < 40, "half sets", f"{times} records say {text!r}")
    return ids


FLOOR = {"codebase": (20, 22), "household": (60, 30), "project": (150, 45), "support": (300, 60), "club": (64, 50)}


def check_floor(report: Report) -> list[str]:
    every: list[str] = []
    for name, (items, asked) in FLOOR.items():
        path = HERE / "floor" / f"{name}.jsonl"
        records = list(read_records(path, report)) if path.exists() else []
        known = [record["id"] for _, record in records if record["type"] == "item"]
        questions = [(where, record) for where, record in records if record["type"] == "question"]
        report.expect(len(known) == items, path.name, f"{len(known)} items instead of {items}")
        for where, record in questions:
            report.expect(set(record["answers"]) <= set(known), where, "an answer is not among the items")
            report.expect(record["empty"] == (not record["answers"]), where, "answers and 'empty' disagree")
        off_topic = sum(record["empty"] for _, record in questions)
        report.expect(off_topic == 15, path.name, f"{off_topic} off-topic questions instead of 15")
        report.expect(len(questions) - off_topic >= asked, path.name, f"fewer than {asked} questions")
        every += [record["id"] for _, record in records]
    return every


def check_recall_set(report: Report, name: str, docs: int, asked: int) -> list[str]:
    """Check a set in the form of the recall bench: docs first, then questions with gold ids."""
    path = HERE / f"{name}.jsonl"
    records = list(read_records(path, report)) if path.exists() else []
    texts = {record["id"]: record for _, record in records if record["type"] == "doc"}
    questions = [(where, record) for where, record in records if record["type"] == "question"]
    report.expect(len(texts) >= docs, path.name, f"{len(texts)} docs")
    report.expect(len(questions) >= asked, path.name, f"{len(questions)} questions")
    for where, record in records:
        fields = {
            "doc": "space id session turn ts speaker role text caption",
            "question": "space id question category gold answer",
        }
        expect_fields(report, where, record, fields[record["type"]])
    for where, record in questions:
        report.expect(record["category"] in CATEGORIES, where, f"unknown category {record['category']!r}")
        gold = [texts[name] for name in record["gold"] if name in texts]
        report.expect(len(gold) == len(record["gold"]) > 0, where, "gold does not resolve")
        report.expect(all(doc["space"] == record["space"] for doc in gold), where, "gold lies in another space")
        passage = record.get("passage")
        report.expect(
            not passage or contains([doc["text"] for doc in gold], passage), where, f"not in the gold: {passage!r}"
        )
    return [record["id"] for _, record in records]


def main() -> int:
    report = Report()
    ids = [*check_personas(report), *check_half_sets(report), *check_floor(report)]
    ids += check_recall_set(report, "facts", docs=500, asked=150)
    ids += check_recall_set(report, "documents", docs=100, asked=200)
    expect_unique(report, ids, "all sets")
    for name, count in sorted(report.counts.items()):
        sys.stdout.write(f"{count:5d}  {name}\n")
    for problem in report.problems:
        sys.stdout.write(f"{problem}\n")
    return 1 if report.problems else 0


if __name__ == "__main__":
    sys.exit(main())
