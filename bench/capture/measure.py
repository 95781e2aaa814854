"""Read the labelled messages, and measure what the gate keeps of them."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import click

from engrain.core.model.items import Statement
from engrain.core.text.tokenizer import tokenize
from engrain.ingest.gate import JudgeSentences, find_statements
from engrain.ingest.sentence_model import KEPT_KINDS

HERE = Path(__file__).parent
TEST_FILES = HERE.parents[1] / "tests" / "files"
# The changes for training, by author.
CHANGES = {
    "first": ("changes-dev",),
    "second": ("changes-more", "changes-validation"),
    "blind": ("blind/changes-blind",),
    "third": ("changes-third",),
    "fourth": ("changes-fourth",),
    "blind-2": ("blind-2/changes-blind-2",),
    "fifth": ("changes-fifth",),
    "sixth": ("changes-sixth",),
    "blind-3": ("blind-3/changes-blind-3",),
}
DEV = "personas"
# The sentences and people of further authors, scored first and then used for training: each is one group.
RELEASED = ("blind", "blind-2", "blind-4", "blind-5", "blind-6", "blind-7", "blind-8", "blind-9", "blind-10")
# A statement is kept if one fact holds this share of its words.
MIN_COVERED = 0.6
_BEFORE = 4  # messages


@dataclass(frozen=True, slots=True)
class Message:
    """A user's message. `spans` are (start, end, kind); `default` is the kind of what lies in no span."""

    group: str
    part: str
    text: str
    spans: tuple[tuple[int, int, str], ...]
    may: tuple[str, ...] = ()
    default: str | None = None
    before: tuple[tuple[str, str], ...] = ()

    @property
    def kept_texts(self) -> list[str]:
        return [self.text[start:end] for start, end, kind in self.spans if kind in KEPT_KINDS]


@dataclass(slots=True)
class Measured:
    """Counts of statements to keep, of facts, and of messages with nothing to keep."""

    wanted: int = 0
    missed: list[str] = field(default_factory=list)
    clipped: list[str] = field(default_factory=list)
    facts: int = 0
    false: list[str] = field(default_factory=list)
    empty: int = 0
    broken: list[str] = field(default_factory=list)  # messages with nothing to keep that left a fact

    def __str__(self) -> str:
        kept, right = self.wanted - len(self.missed), self.facts - len(self.false)
        return (
            f"kept {kept}/{self.wanted} = {kept / max(1, self.wanted):.3f}, precision {right}/{self.facts} ="
            f" {right / max(1, self.facts):.3f}, clipped {len(self.clipped)},"
            f" messages with nothing to keep that left a fact {len(self.broken)}/{self.empty}"
        )

    def print_errors(self) -> None:
        for title, some in (("missed", self.missed), ("clipped", self.clipped), ("false", self.false)):
            for one in some:
                click.echo(f"  {title}: {one!r}")


def measure_messages(
    messages: Sequence[Message], find_judge: Callable[[str], JudgeSentences | None]
) -> dict[str, Measured]:
    """Measure the statements that the gate finds, by the part that a message belongs to."""
    found: dict[str, Measured] = defaultdict(Measured)
    for message in messages:
        some = find_statements(message.text, message.before, find_judge(message.group))
        facts = [message.text[one.start : one.end] for one in some if isinstance(one, Statement)]
        measure_message(message, facts, found[message.part])
    return found


def measure_message(message: Message, facts: Sequence[str], measured: Measured) -> None:
    wanted = message.kept_texts
    for text in wanted:
        covered = max((share_words(text, fact) for fact in facts), default=0.0)
        together = share_words(text, " ".join(facts))
        measured.wanted += 1
        if together < MIN_COVERED:
            measured.missed.append(text)
        if 0.3 < covered < MIN_COVERED:
            measured.clipped.append(f"{text} => {facts}")
    listed = [*wanted, *message.may]
    measured.facts += len(facts)
    measured.false += [fact for fact in facts if not any(share_words(fact, one) >= 0.25 for one in listed)]
    if not listed:
        measured.empty += 1
        measured.broken += [message.text] if facts else []


def share_words(wanted: str, held: str) -> float:
    """Return the share of the words of `wanted` that are in the other text."""
    words, others = tokenize(wanted), set(tokenize(held))
    return sum(word in others for word in words) / len(words) if words else 0.0


def read_messages() -> Iterator[Message]:
    for path in sorted((HERE / "training").glob("*.jsonl")):
        for record in read_lines(path):
            if record["type"] == "message":
                parts = [(part["text"], part["kind"]) for part in record["parts"]]
                yield Message(path.stem, "training", record["text"], find_spans(record["text"], parts))
    for record in read_lines(HERE / "sentences-dev.jsonl"):
        if "kind" in record:
            yield build_message("sentences", record["id"], record["text"], record["kind"])
    for path in sorted((HERE / "personas" / "dev").glob("*.jsonl")):
        yield from read_persona(path, path.stem)
    for name in RELEASED:
        yield from read_blind(name)
    yield from read_other_sets()


def read_blind(name: str) -> Iterator[Message]:
    """Yield the sentences and people of the author of a blind set, as one group."""
    for record in read_lines(HERE / name / f"sentences-{name}.jsonl"):
        spans = find_spans(record["text"], [(record["text"], record["kind"])])
        yield Message(name, f"{name} sentences", record["text"], spans)
    for path in sorted((HERE / name).glob("person*.jsonl")):
        yield from (replace(one, part=f"{name} people") for one in read_persona(path, name))


def read_other_sets() -> Iterator[Message]:
    """Yield the texts of dev sets that were made to measure something else, but tell what lasts."""
    yield from read_changes(("changes-dev", "changes-more"))
    for record in (one for name in ("dev", "more") for one in read_lines(HERE / f"forget-{name}.jsonl")):
        for message in record.get("messages", ()):
            if message["id"] in record["targets"]:
                yield build_message("forget", record["id"], message["text"], "fact")
        if "request" in record:
            yield build_message("forget", record["id"], record["request"], "other")
    for record in read_lines(HERE / "coding-events-dev.jsonl"):
        if record.get("event") == "prompt":
            parts = [(one["text"], "fact") for one in record["keep"]]
            group, default = choose_group("events", record["id"]), None if parts else "other"
            yield Message(group, "events", record["text"], find_spans(record["text"], parts), default=default)
    for name in ("codebase", "household", "project"):
        for record in read_lines(HERE / "floor" / f"{name}.jsonl"):
            if record["type"] == "item":
                yield build_message("floor", record["id"], record["text"], "fact")
    for name in ("gate-dev", "gate-sentences"):
        for record in read_lines(TEST_FILES / f"{name}.jsonl"):
            yield build_message("gate", record["text"], record["text"], "fact" if record["keep"] else "other")
    for record in read_lines(HERE.parent / "hostile" / "pastes-dev.jsonl"):
        if record["id"].startswith(("paste", "frame")) and not record["keeps"]:
            yield Message(choose_group("pastes", record["id"]), "pastes", record["text"], (), default="quoted")


def read_changes(names: Sequence[str]) -> Iterator[Message]:
    """Yield both statements of each change: all are worth keeping.

    Not of all authors: with 3,000 more of them the model keeps more of everything. At the same share of false facts it
    kept less of two authors' chats.
    """
    for record in (one for name in names for one in read_lines(HERE / f"{name}.jsonl") if "first" in one):
        for text, value in ((record["first"], record["old_value"]), (record["later"], record["new_value"])):
            spans = find_spans(text, [(value, "fact")])
            yield Message(choose_group("changes", record["id"]), "changes", text, spans)


# The files of requests to forget, by author.
FORGET_FILES = {
    "first": ("forget-dev",),
    "second": ("forget-more", "forget-validation"),
    "blind": ("blind/forget-blind",),
    "third": ("forget-third", "forget-sentences"),
    "fourth": ("forget-fourth",),
    "blind-2": ("blind-2/forget-blind-2",),
    "fifth": ("forget-fifth",),
}


def hash_forget_files() -> str:
    """Return the hash of the files from which the weights of requests to forget are made, without `training`."""
    names = sorted(name for files in (FORGET_FILES, CHANGES) for group in files.values() for name in group)
    return hashlib.sha256(b"".join((HERE / f"{name}.jsonl").read_bytes() for name in names)).hexdigest()


def hash_files(*more: Sequence[str]) -> str:
    """Return the hash of the files from which all weights are made, and of more files for some of them."""
    paths = [
        *(HERE / "training").glob("*.jsonl"),
        *(HERE / "personas" / "dev").glob("*.jsonl"),
        *(path for name in RELEASED for path in (HERE / name).glob("person*.jsonl")),
        *(HERE / name / f"sentences-{name}.jsonl" for name in RELEASED),
        *(HERE / f"{name}-{part}.jsonl" for name in ("changes", "forget") for part in ("dev", "more")),
        *(HERE / f"{name}-dev.jsonl" for name in ("sentences", "coding-events")),
        *(HERE / "floor" / f"{name}.jsonl" for name in ("codebase", "household", "project")),
        *(TEST_FILES / f"{name}.jsonl" for name in ("gate-dev", "gate-sentences")),
        HERE.parent / "hostile" / "pastes-dev.jsonl",
        *(HERE / f"{name}.jsonl" for names in more for name in names),
    ]
    found = hashlib.sha256()
    for path in sorted(set(paths)):
        found.update(path.read_bytes())
    return found.hexdigest()


def build_message(part: str, id: str, text: str, kind: str) -> Message:
    return Message(choose_group(part, id), part, text, find_spans(text, [(text, kind)]))


def choose_group(part: str, id: str) -> str:
    """Return one of several groups of a set without people, so that it can be split like them."""
    return f"{part} {zlib.crc32(id.encode()) % 8}"


def read_persona(path: Path, group: str) -> Iterator[Message]:
    before: list[tuple[str, str]] = []
    for record in read_lines(path):
        if record["type"] == "session":
            before.clear()
        if record["type"] != "message":
            continue
        if record["role"] == "user":
            text, parts = record["text"], [(one["text"], guess_kind(one["aspect"])) for one in record["keeps"]]
            default = None if parts or record["may"] else "other"
            spans = find_spans(text, parts)
            yield Message(group, DEV, text, spans, tuple(record["may"]), default, tuple(before[-_BEFORE:]))
        before.append((record["role"], record["text"]))


def guess_kind(aspect: str) -> str:
    return "instruction" if any(word in aspect for word in ("style", "instruction", "rule", "wish")) else "fact"


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    return (json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip())


def find_spans(text: str, parts: Sequence[tuple[str, str]]) -> tuple[tuple[int, int, str], ...]:
    """Find the parts in the text: in order if they are, or else anywhere."""
    spans, position = [], 0
    for part, kind in parts:
        start = text.find(part, position)
        start = text.find(part) if start < 0 else start
        position = start + len(part)
        spans.append((start, position, kind))
    return tuple(spans)
