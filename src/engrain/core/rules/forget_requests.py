"""Find requests to forget something in a message, and the matter that they name."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources

from engrain.core.text.languages import load_languages
from engrain.core.text.passages import Sentence, Span, split_sentences, trim_span
from engrain.core.text.tokenizer import hash_term, tokenize

MAX_REQUEST_CHARACTERS = 240
MAX_MESSAGE_CHARACTERS = 2_400
MAX_SENTENCES = 12
_MAX_LEADS = 8
_WRAP = re.compile(r"\n\s*")
_BREAK = re.compile(r"[,;:.!?…–—]+(?:\s|$)|\s-+\s|[–—]|\s(?=so (?:just |please )?(?:delete|forget|remove|erase))")
_HINT = re.compile(
    r"forget|unlearn|unrememb|disregard|delet|eras|remov|wip|scrub|clear|drop|purg|scrap|scratch|str[iu][kc]|discard|"
    r"\blos|get rid|gone\b|\bbin\b|ditch|expung|omit|\btake\b|can go|leave out|rememb|stor|keep|kept|sav|retain|"
    r"hold on|hang on|vergi[sß]|vergess|lösch|streich|entfern|merk|speicher|behalt|notier|raus\b|tilg|olv[ií]d|b[oó]rr|"
    r"elim|quit|supri|guard|recuerd|apunt|anot|sac[ao]|oubli|efface|supprim|retir|gard|retien|enl[eè]v|mémoris|vire\b"
)
_LEADS = re.compile(
    r"(?:(?:my|our|the|mein\w*|unsere?\w*|die|der|das|dem|den|mis?|nuestr[oa]s?|el|la|los|las|lo|"
    r"mon|ma|mes|le|les|l')\b ?)+"
)
_FORGET = re.compile(r"forget|vergi|olv|oubli|unlearn|unremember")
_IDIOM = re.compile(r"(?:forget (?:about )?it|vergiss es|olvídalo|oublie)\s*$")
_POINTS = re.compile(
    r"\b(?:that|it|this|last|just|das|es|letzte\w*|eben|gerade|eso|esto|lo|últim[oa]|acabo|ça|ca|cela|derni\w+|viens)\b"
    r"|lo$|-l[ae]"
)
_POLITE = re.compile(
    r"(?:\W*\w+[,.] |please |hey |dear,? )*(?:(?:can|could|would|will|may) (?:you|u|we)|kannst du|könntest du|puedes|"
    r"podrías|peux-tu|pourrais-tu|tu peux|est-ce que tu peux)"
)
_FIELDS = ("lead", "drop", "weak", "support", "keep", "ending", "memory", "all", "never", "object", "aside", "filler")


@dataclass(frozen=True, slots=True)
class ForgetTopic:
    """The matter of a request: the words from `start` to `end`. An empty topic means the message before.

    `everything` about it is meant, however often it was said.
    """

    start: int
    end: int
    topic: str
    everything: bool = False


def mentions_forgetting(text: str) -> bool:
    """Tell if a message may ask to forget something. A very long one is no request."""
    return len(text) <= MAX_MESSAGE_CHARACTERS and _HINT.search(text.lower()) is not None


def find_forget_topics(shown: str) -> list[ForgetTopic]:
    """Return the requests of a message, whose words of others are blank."""
    if not mentions_forgetting(shown):
        return []
    sentences = split_sentences(shown)[:MAX_SENTENCES]
    found: list[ForgetTopic] = []
    for place in range(len(sentences)):
        topic = _read_request(shown, sentences, place)
        # "I don't want this in there. Delete it." is one request.
        if topic is not None and not (found and topic.start == found[-1].start):
            found.append(topic)
    named = [one for one in found if one.topic]
    return named if len(named) == 1 else found


def _read_request(shown: str, sentences: Sequence[Sentence], place: int) -> ForgetTopic | None:
    one, words = sentences[place], _load_words()
    start, end = trim_span(shown, one.start, one.end)
    text = fold_text(shown[start:end])
    if end - start > MAX_REQUEST_CHARACTERS or words.never.search(text):
        return None
    follows = fold_text(shown[end : sentences[place + 1].end]).strip(" .,;!?-") if place + 1 < len(sentences) else ""
    clauses = _split_clauses(text)
    for number, clause in enumerate(clauses):
        order = _find_order(text, clause)
        if order is None or (one.is_question and not order.opens and not _is_polite(text)):
            continue
        rest = [text[slice(*other)].strip() for other in clauses[number + 1 :]]
        if any(words.aside.match(other) for other in (*rest, follows) if other):
            return None
        topic = _find_topic(text, clauses, number, order)
        if not topic and place:
            before = trim_span(shown, sentences[place - 1].start, sentences[place - 1].end)
            topic = _strip_topic(fold_text(shown[slice(*before)]))
            start = before[0] if topic else start
        idiom = _IDIOM.match(text, order.start, clause[1]) and not words.support.search(text[: order.start])
        if not topic and (idiom or not _POINTS.search(text)):
            return None
        return ForgetTopic(start, end, topic, words.all.search(text) is not None)
    return None


def _split_clauses(text: str) -> list[Span]:
    edges = [0, *(edge for match in _BREAK.finditer(text) for edge in match.span()), len(text)]
    return [(edges[k], edges[k + 1]) for k in range(0, len(edges), 2) if edges[k] < edges[k + 1]]


@dataclass(frozen=True, slots=True)
class _Order:
    """The words of a clause that order to forget something. `opens`: the clause begins with them."""

    start: int
    end: int
    opens: bool = False


def _find_order(text: str, clause: Span) -> _Order | None:
    words, (start, end) = _load_words(), clause
    at = _skip_leads(text, start, end)
    found = words.drop.match(text, at, end)
    if found is None and (weak := words.weak.match(text, at, end)):
        found = weak if words.support.search(text) else None
    if found and not _FORGET.match(found[0]) and words.object.search(text, start, end):
        return None
    if found:
        return _Order(*found.span(), opens=True)
    # Of the same length, so that places stay.
    bare = words.memory.sub(lambda match: " " * len(match[0]), text[start:end]).rstrip(" .!?")
    kept = words.keep.search(text, start, end) or words.ending.search(text[:start] + bare, start)
    return _Order(*kept.span()) if kept else None


def _skip_leads(text: str, start: int, end: int) -> int:
    for _ in range(_MAX_LEADS):
        start += len(text[start:end]) - len(text[start:end].lstrip())
        lead = _load_words().lead.match(text, start, end)
        if lead is None or lead.end() == start:
            break
        start = lead.end()
    return start


def _find_topic(text: str, clauses: Sequence[Span], place: int, order: _Order) -> str:
    """Return the words that name the matter: behind the order, before it, or in a clause before."""
    start, end = clauses[place]
    told = [one for one in clauses[place + 1 : place + 2] if _load_words().filler.match(text[slice(*one)].lstrip())]
    spans = [(order.end, end), (start, order.start), *told, *reversed(clauses[:place])]
    return next((topic for span in spans if (topic := _strip_topic(text[slice(*span)]))), "")


def _strip_topic(text: str) -> str:
    """Return the name of a matter without the words around it. Nothing if no word of its own is left."""
    words = _load_words()
    text = words.memory.sub(" ", text).strip(" .,;:!?¿¡-")
    for _ in range(4):
        for pattern in (words.lead, words.filler, _LEADS):
            match = pattern.match(text)
            text = text[match.end() :].strip() if match and match.end() < len(text) else text
    own = list_own_words(text)
    return text if own and not all(len(word) < 2 for word in own) else ""


def list_own_words(text: str) -> list[str]:
    """Return the words that may name a matter, without those that requests have in common."""
    return [word for word in tokenize(text) if word not in _load_words().noise and hash_term(word) not in _stop_terms()]


def fold_text(text: str) -> str:
    """Return the text in lower case with plain apostrophes, each character in its place."""
    return "".join(lower if len(lower := mark.lower()) == 1 else mark for mark in text).replace("’", "'")


def _is_polite(text: str) -> bool:
    """Tell a request in the form of a question: "can you forget …?"."""
    return any(_POLITE.match(text, start) for start, _ in _split_clauses(text))


@dataclass(frozen=True, slots=True)
class _Words:
    """The patterns of all languages, and the words that name no matter."""

    lead: re.Pattern[str]
    drop: re.Pattern[str]
    weak: re.Pattern[str]
    support: re.Pattern[str]
    keep: re.Pattern[str]
    ending: re.Pattern[str]
    memory: re.Pattern[str]
    all: re.Pattern[str]
    never: re.Pattern[str]
    object: re.Pattern[str]
    aside: re.Pattern[str]
    filler: re.Pattern[str]
    noise: frozenset[str]


@cache
def _stop_terms() -> frozenset[int]:
    return frozenset().union(*(one.stop_terms for one in load_languages().by_name.values()))


@cache
def _load_words() -> _Words:
    file = resources.files("engrain.core") / "data" / "forget.toml"
    tables = tomllib.loads(file.read_text("utf-8")).values()
    joined = {name: "|".join(_WRAP.sub("", table[name]) for table in tables) for name in _FIELDS}
    shapes = {
        "drop": r"(?:{0})\b",
        "weak": r"(?:{0})(?!\w)",
        "object": r"(?<!\w)(?:{0})",
        "ending": r"(?<!\w)(?:{0})$",
        "keep": r"(?<!\w)(?:{0})",
        "all": r"(?<!\w)(?:{0})",
    }
    patterns = {name: re.compile(shapes.get(name, "(?:{0})").replace("{0}", one)) for name, one in joined.items()}
    noise = frozenset(word for table in tables for word in (*table["noise"].split(), *tokenize(table["noise"])))
    return _Words(**patterns, noise=noise)
