"""Read the texts from which the model of `ingest/whose_words.py` learns, and make more of them by mixing.

A paste gives its frame ("what does this say?") to own sentences of other people, which are then words of others. Own
sentences beside a paste stay own. Several sentences of one person make an ordinary message of some length. So the same
sentence is seen with and without a frame, and only the frame tells whose it is.
"""

from __future__ import annotations

import hashlib
import json
import random
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from engrain.core.rules.own_words import blank_blocks, blank_pasted
from engrain.core.rules.quotation_frames import cue
from engrain.core.text.passages import Sentence
from engrain.ingest.sentence_model import KEPT_KINDS
from engrain.ingest.whose_words import MAX_PARTS, split_parts

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent / "capture"))

from measure import Message, read_messages  # noqa: E402

# The files of pastes, by author. The authors of one fold are scored with weights of the others.
FOLDS = (("dev", "dev-3"), ("dev-2", "blind"), ("blind-2", "blind-4"), ("blind-3", "dev-4"))
AUTHORS = tuple(author for fold in FOLDS for author in fold)
# The people of bench/capture, by name: others that are added there do not change the weights.
PARTS = ("training", "sentences", "personas", "blind people", "blind-2 people", "changes", "gate")
PEOPLE = frozenset((HERE / "people.txt").read_text("utf-8").split())
OWN, OTHERS, UNKNOWN = 1, 0, -1
PLAIN_TEXTS, FRAMED_TEXTS, BESIDE_TEXTS, JOINED_TEXTS, JOINED_FRAMED_TEXTS = 3_500, 1_200, 1_600, 1_100, 400
MIN_OVERLAP = 0.5
MIN_FRAME, MAX_FRAME, MAX_TAIL = 8, 220, 200
GREETINGS = (
    *("Hi", "hey", "hello", "Hallo", "Bonjour", "Hola", "Quick question", "Two things", "some background"),
    *("Kurze Frage", "une question", "una cosa", "one more thing", "so", "Context"),
)
JOINTS, GAPS = (". ", ". ", ".\n", ".\n\n", ", ", " - "), (" ", " ", " ", " ", "\n", "\n\n")
ASIDES, PARTINGS = ("", "", "btw ", "by the way, ", "", "unrelated: "), ("btw ", "by the way, ", "anyway, ", "ps ")


@dataclass(frozen=True, slots=True)
class Text:
    """A message, its parts and whose each of them is. `author` wrote the paste, or is the person who speaks."""

    author: str
    kind: str  # paste, ordinary (by an author of pastes), plain, framed, beside, joined
    text: str
    shown: str
    parts: Sequence[Sentence]
    labels: Sequence[int]


Labelled = tuple[int, int, int]


def read_texts() -> list[Text]:
    """Return the texts of all authors and people, then those that are mixed from them."""
    texts = [*read_pastes(), *read_plain()]
    pastes = [one for one in texts if one.kind == "paste"]
    frames = [one for one in map(find_frame, pastes) if one]
    made = [*frame_sentences(frames), *add_sentences(pastes), *join_sentences(frames)]
    return [one for one in (*texts, *made) if any(label != UNKNOWN for label in one.labels)]


def hash_texts() -> str:
    """Return the hash of all texts, before they are mixed."""
    found = hashlib.sha256(b"".join(find_file(author).read_bytes() for author in AUTHORS))
    for message in read_people():
        found.update(f"{message.group} {message.part} {message.text} {message.spans}".encode())
    return found.hexdigest()


@cache
def read_people() -> tuple[Message, ...]:
    known = (one for one in read_messages() if one.part in PARTS)
    return tuple(one for one in known if one.part != "training" or one.group in PEOPLE)


def find_file(author: str) -> Path:
    return HERE / f"pastes-{author}.jsonl"


def read_pastes() -> Iterator[Text]:
    for author in AUTHORS:
        for line in find_file(author).read_text("utf-8").splitlines():
            row = json.loads(line)
            ordinary = row["id"].startswith(("o", "plain"))
            text = build_text(author, "ordinary" if ordinary else "paste", row["text"], [])
            labels = [OWN] * len(text.parts) if ordinary else list(label_paste(row, text))
            yield Text(author, text.kind, text.text, text.shown, text.parts, labels)


def build_text(author: str, kind: str, text: str, spans: Sequence[Labelled]) -> Text:
    """Split a text. Each part has the label of the span that fills most of it."""
    shown = blank_pasted(blank_blocks(text))
    parts = split_parts(shown)[:MAX_PARTS]
    labels = []
    for part in parts:
        found = [(min(part.end, end) - max(part.start, start), label) for start, end, label in spans]
        length, label = max(found, default=(0, UNKNOWN))
        labels.append(label if length > 0 else UNKNOWN)
    return Text(author, kind, text, shown, parts, labels)


def label_paste(row: dict[str, Any], text: Text) -> Iterator[int]:
    """Yield the label of each part: the words that frame a paste are unknown."""
    found = ((text.text.find(words), len(words)) for words in (*row.get("keeps", ()), *row.get("forgets", ())))
    own = [(start, start + length) for start, length in found if start >= 0]
    last = len(text.parts) - 1
    for place, part in enumerate(text.parts):
        shared = [(min(part.end, end) - max(part.start, start), end - start) for start, end in own]
        shared = [(length, whole) for length, whole in shared if length > 0]
        if any(length >= MIN_OVERLAP * min(whole, part.end - part.start) for length, whole in shared):
            yield OWN
            continue
        at_edge = place in (0, last) or (place == 1 and part.is_question)
        before_text = text.shown[part.end : part.end + 1] in (":", "\n") and place < last
        frames = part.is_question or before_text or not speaks(text.shown[part.start : part.end])
        yield UNKNOWN if at_edge and frames else OTHERS


def speaks(words: str) -> bool:
    return any(cue(name).search(words) for name in ("speaker", "first_person"))


def read_plain() -> Iterator[Text]:
    """Yield messages of people, the longer ones first. Parts that quote somebody are of others."""
    messages = list(read_people())
    random.Random(1).shuffle(messages)
    messages.sort(key=lambda one: not (len(one.text) > 120 or one.part == "personas" or "\n" in one.text))
    for message in messages[:PLAIN_TEXTS]:
        text = build_text(message.group, "plain", message.text, [])
        yield Text(*(text.author, text.kind, text.text, text.shown, text.parts), list(label_plain(message, text)))


def label_plain(message: Message, text: Text) -> Iterator[int]:
    quotes = any(kind == "quoted" for *_, kind in message.spans)
    for part in text.parts:
        kinds = {
            kind
            for start, end, kind in message.spans
            if min(part.end, end) - max(part.start, start) >= MIN_OVERLAP * min(end - start, part.end - part.start)
        }
        yield OTHERS if kinds == {"quoted"} else UNKNOWN if quotes and not kinds else OWN


@dataclass(frozen=True, slots=True)
class Frame:
    author: str
    lead: str
    tail: str

    def surround(self, words: str) -> str:
        tail = self.tail if not self.tail or self.tail.startswith(("\n", ".")) else f"\n{self.tail}"
        return self.lead + words + tail


def find_frame(paste: Text) -> Frame | None:
    """Return the words before and behind the text of others, if a line, a colon or a question divides them."""
    places = [place for place, label in enumerate(paste.labels) if label == OTHERS]
    if not places or OWN in paste.labels:
        return None
    first, last = places[0], places[-1]
    lead = paste.text[: paste.parts[first].start] if first else ""
    tail = paste.text[paste.parts[last].end :] if last < len(paste.parts) - 1 else ""
    said = lead.rstrip()
    divided = (said[-1:] in (":", "?") and lead.endswith(" ")) or "\n" in lead[len(said) :]
    lead = lead if MIN_FRAME <= len(lead) <= MAX_FRAME and divided else ""
    tail = tail if "\n" in tail[:4] and len(tail) < MAX_TAIL else ""
    return Frame(paste.author, lead, tail) if lead or tail else None


def list_statements() -> list[str]:
    """Return lasting sentences of people in the first person."""
    found = {
        message.text[start:end].strip(" .")
        for message in read_people()
        if message.part not in ("changes", "gate")
        for start, end, kind in message.spans
        if kind in KEPT_KINDS and 15 <= end - start <= 160
    }
    return sorted(one for one in found if speaks(one) and not any(mark in one for mark in '\n":'))


def frame_sentences(frames: Sequence[Frame]) -> Iterator[Text]:
    """Yield own sentences of people in the frames of pastes."""
    choose, pool = random.Random(3), list_statements()
    for _ in range(FRAMED_TEXTS):
        frame, some = choose.choice(frames), choose.sample(pool, choose.choice((1, 1, 2, 3)))
        if choose.random() < 0.5:
            some = [one[0].upper() + one[1:] for one in some]
        words = ". ".join(some) + ("." if choose.random() < 0.7 else "")
        spans = [(len(frame.lead), len(frame.lead) + len(words), OTHERS)]
        yield build_text(frame.author, "framed", frame.surround(words), spans)


def add_sentences(pastes: Sequence[Text]) -> Iterator[Text]:
    """Yield pastes with an own sentence before or behind them."""
    choose, pool = random.Random(4), list_statements()
    for _ in range(BESIDE_TEXTS):
        paste, own = choose.choice(pastes), choose.choice(pool)
        spans = [(one.start, one.end, label) for one, label in zip(paste.parts, paste.labels, strict=True)]
        text = paste.text.rstrip()
        if choose.random() < 0.65:
            own += ". " + choose.choice(pool) if choose.random() < 0.3 else ""
            joint = choose.choice(JOINTS) if paste.labels[:1] == [UNKNOWN] else ".\n\n"
            moved = len(own) + len(joint)
            spans = [(0, len(own), OWN), *((start + moved, end + moved, label) for start, end, label in spans)]
            text = own + joint + text
        else:
            closed = paste.shown.rstrip()[-1:] in "\"”»`'" or paste.labels[-1:] == [UNKNOWN]
            gap = choose.choice(("\n\n", "\n", " ")) if closed else "\n\n"
            spans.append((len(text + gap), len(text) + 1_000, OWN))
            text += gap + choose.choice(ASIDES if closed else PARTINGS) + own
        yield build_text(paste.author, "beside", text, spans)


def join_sentences(frames: Sequence[Frame]) -> Iterator[Text]:
    """Yield messages of several sentences of one person, and some of them in the frames of pastes."""
    choose, people = random.Random(5), defaultdict[str, dict[str, list[str]]](lambda: defaultdict(list))
    for message in (one for one in read_people() if one.part not in ("sentences", "changes", "gate")):
        for start, end, kind in message.spans:
            words = message.text[start:end].strip()
            sort = "keep" if kind in KEPT_KINDS else kind if kind in ("question", "quoted") else "other"
            if 8 <= len(words) <= 200 and "\n" not in words and '"' not in words:
                people[message.group][sort].append(words)
    names = sorted(name for name, said in people.items() if len(said["keep"]) >= 8)
    for _ in range(JOINED_TEXTS):
        name = choose.choice(names)
        words = join_words(people[name], choose)
        yield build_text(name, "joined", words, [(0, len(words), OWN)])
    for _ in range(JOINED_FRAMED_TEXTS):
        frame, words = choose.choice(frames), join_words(people[choose.choice(names)], choose)
        spans = [(len(frame.lead), len(frame.lead) + len(words), OTHERS)]
        made = build_text(frame.author, "framed", frame.surround(words), spans)
        labels = [UNKNOWN if one.is_question else label for one, label in zip(made.parts, made.labels, strict=True)]
        yield Text(made.author, made.kind, made.text, made.shown, made.parts, labels)


def join_words(said: dict[str, list[str]], choose: random.Random) -> str:
    parts = [(choose.choice(said["keep"]), ".") for _ in range(choose.choice((1, 2, 2, 3, 4)))]
    if said["question"] and choose.random() < 0.6:
        parts.insert(choose.choice((0, len(parts))), (choose.choice(said["question"]), "?"))
    if said["other"] and choose.random() < 0.4:
        parts.insert(choose.randrange(len(parts) + 1), (choose.choice(said["other"]), choose.choice(".!")))
    if choose.random() < 0.12:
        parts.insert(0, (choose.choice(GREETINGS), choose.choice(("!", ",", ":", "."))))
    capital = choose.random() < 0.6
    words = ""
    for part, mark in parts:
        part = part.rstrip(".!? ") or part
        words += (part[0].upper() + part[1:] if capital else part) + mark + choose.choice(GAPS)
    return words.strip()
