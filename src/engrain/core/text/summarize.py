"""Shorten a conversation to its most telling sentences, word for word and without a model."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain

from engrain.core.model.items import FORGOTTEN
from engrain.core.rules.statements import INSTRUCTION_OR_PREFERENCE, IS_QUESTION, NUMBER_OR_TIME, detect_traits
from engrain.core.text.languages import load_languages
from engrain.core.text.passages import find_sentence_spans
from engrain.core.text.tokenizer import count_unspaced_characters, extract_terms, hash_term, tokenize
from engrain.core.tokens import ELLIPSIS, CountTokens, clip_text, estimate_tokens, shorten_line

SUMMARY_KIND = "summary"  # the kind of a part that is an earlier summary

# The worth of a line is the sum of these, for everything that its sentence has.
DECISION_WORTH = 4.0
ERROR_WORTH = 3.0
WISH_WORTH = 2.0  # an instruction or a preference
CENTRAL_WORTH = 2.0  # for the line closest to the whole; less for the others
NUMBER_WORTH = 1.0
NAME_WORTH = 1.0
PERSON_WORTH = 0.5  # said by neither the assistant nor a tool
QUESTION_WORTH = -1.0
OPEN_QUESTION_WORTH = 4.0  # for a question that nobody has answered yet

EARLIER_SHARE = 1 / 3  # of the room is kept for the best lines of an earlier summary
# A line needs so many words that say something: if it has worth, if it has none, and if the assistant said it.
MIN_WORDS_WITH_WORTH, MIN_WORDS, MIN_ASSISTANT_WORDS = 1, 2, 3

MAX_OUTPUT_LINES = 3  # of a tool's output, which may have many lines that look alike
MAX_LINE_CHARACTERS = 400
MAX_PARAGRAPH_CHARACTERS = 300  # a longer line of an earlier summary is split into sentences
MIN_SHARED_WORDS = 1 / 3  # of the words of a summary must be in the texts that it sums up
MIN_REPEATED_WORDS = 0.7  # of the words of two lines, where one has no word that the other has not

_MAX_SPEAKER_CHARACTERS, _MAX_KIND_CHARACTERS = 80, 40
_KEPT_WORTH = 1_000.0  # puts the lines to keep of an earlier summary before all others
_NUMBERS = re.compile(r"\d+")
MAX_SMALL_TALK_WORDS = 14
_LABEL = re.compile(r"[^\n]{1,130}?: ")
# Line ends that are not "\n" would make lines of their own in a prompt.
_OTHER_LINE_ENDS = dict.fromkeys(map(ord, "\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"), " ")
_ABBREVIATED_END = re.compile(
    r"(?:^\d{1,3}|(?:^|\s)(?:[A-Z]|Dr|Mr|Mrs|Ms|Prof|St|vs|No|Nr|bzw|approx|e\.g|i\.e|z\.B"
    r"|(?:am|vom|zum|bis|ab|der|den|dem) [0-3]?\d))\.$"
)
_QUOTE = re.compile('["“”„«»]')
_INNER_WORD = re.compile(r"(?<=[\w,;.)] )[^\W\d_]\w+")
# Code, paths, addresses, CamelCase, Katakana, and names in the quotes of Chinese and Japanese.
_CODE = re.compile(r"`[^`]+`|\w[./_@]\w|[a-z][A-Z]|[\u30a1-\u30fa\u30fc]{2}|[「『《]")


@dataclass(frozen=True, slots=True)
class DigestPart:
    """Something said or done, before it is shortened.

    `kind` is a word such as "decision" or "error". A part of SUMMARY_KIND stays in front, its lines unchanged.
    `day` is set if it differs from the day of the whole. A `whole` part is one line.
    A tool's `output` gives only its best few lines.
    """

    text: str
    speaker: str = ""
    kind: str = ""
    day: str = ""
    whole: bool = False
    output: bool = False


@dataclass(frozen=True, slots=True)
class DigestLine:
    """A line of a digest: a sentence after its speaker's name. `part` is the number of the part it comes from."""

    text: str
    tokens: int
    terms: frozenset[int]
    worth: float
    part: int = -1


def write_digest(parts: Sequence[DigestPart], limit: int, count: CountTokens = estimate_tokens) -> str:
    """Write the most telling lines of the parts, in their order, in at most `limit` tokens."""
    return join_lines(select_lines(parts, limit, count))


def select_lines(parts: Sequence[DigestPart], limit: int, count: CountTokens = estimate_tokens) -> list[DigestLine]:
    """Select the most telling sentences of the parts, word for word and in their order.

    Small talk is left out even if there is room. Forgotten text has no line. Repeats appear once.
    Nothing is shortened twice: a line of an earlier summary stays or goes unchanged, and the best of them stay.
    """
    lines = [
        replace(line, part=number)
        for number, part in enumerate(parts)
        for line in split_lines(part, count)
        if FORGOTTEN not in line.text
    ]
    earlier = [line for line in lines if parts[line.part].kind == SUMMARY_KIND]
    spoken = [line for line in lines if parts[line.part].kind != SUMMARY_KIND]
    first_open = _first_unanswered_part(parts)
    weighed = (
        replace(line, worth=line.worth + OPEN_QUESTION_WORTH)
        if line.part >= first_open and _is_question(line)
        else line
        for line in spoken
    )
    fresh = _limit_outputs([line for line in weighed if _says_enough(line)], parts)
    kept = _raise_best(earlier, int(limit * EARLIER_SHARE))
    return choose_lines([*kept, *fresh], limit, count, drop_repeats=True)


def choose_lines(
    candidates: Sequence[DigestLine], limit: int, count: CountTokens, drop_repeats: bool = False
) -> list[DigestLine]:
    """Choose as many lines as fit, the most worth first, and return them in their order.

    Of equal worth the newer line wins. Equal lines count once; with `drop_repeats` so do nearly equal ones.
    """
    first_of: dict[str, DigestLine] = {}
    for line in candidates:
        first_of.setdefault(line.text, line)
    distinct = list(first_of.values())
    if not drop_repeats and sum(line.tokens for line in distinct) <= limit and count(join_lines(distinct)) <= limit:
        return distinct
    worth = _add_centrality(distinct)
    ranked = sorted(range(len(distinct)), key=lambda index: (-worth[index], -index))
    taken: list[int] = []
    room = limit
    for index in ranked:
        if distinct[index].tokens > room:
            continue
        if not drop_repeats or not any(_is_repeat(distinct[index], distinct[other]) for other in taken):
            taken.append(index)
            room -= distinct[index].tokens
    # Lines may count more together than apart. Twice as many go each time: a counter may be far off.
    surplus = 1
    while taken and count(join_lines([distinct[index] for index in sorted(taken)])) > limit:
        del taken[-surplus:]
        surplus *= 2
    if taken:
        return [distinct[index] for index in sorted(taken)]
    clipped = clip_text(distinct[ranked[0]].text, limit, count) if ranked else ""
    return [make_line(clipped, count)] if clipped else []


def split_lines(part: DigestPart, count: CountTokens) -> list[DigestLine]:
    """Return every line that a digest may take from a part."""
    text = part.text.translate(_OTHER_LINE_ENDS)
    if part.kind == SUMMARY_KIND:
        found = _split_summary(text)
    elif part.whole:
        found = [_make_label(part) + " ".join(text.split())]
    else:
        found = _label_sentences(text, _make_label(part))
    return [make_line(line, count) for line in dict.fromkeys(map(_cut_line, found))]


def _label_sentences(text: str, label: str) -> list[str]:
    sentences = [text[start:end] for start, end in _find_sentences(text, 0, len(text))]
    return [sentence if label and sentence.startswith(label) else label + sentence for sentence in sentences]


def make_line(text: str, count: CountTokens) -> DigestLine:
    text = _cut_line(text)
    body, speaker = _split_label(text)
    terms = frozenset(extract_terms(text))
    return DigestLine(text, count(text + "\n"), terms, _measure_worth(body, speaker, terms))


def join_lines(lines: Iterable[DigestLine]) -> str:
    return "\n".join(line.text for line in lines)


def shares_words(summary: str, texts: Iterable[str]) -> bool:
    """Tell if a model's summary is about the texts, rather than an excuse or something else."""
    own = set(extract_terms(summary)) - load_languages().stop_terms
    terms = {term for text in texts for term in extract_terms(text)}
    return bool(own) and len(own & terms) >= MIN_SHARED_WORDS * len(own)


def _first_unanswered_part(parts: Sequence[DigestPart]) -> int:
    """Return the first part after which nobody else has spoken. A question from there on waits for its answer."""
    last = next((part.speaker for part in reversed(parts) if part.kind != SUMMARY_KIND), "")
    others = (number for number in reversed(range(len(parts))) if parts[number].speaker != last)
    return next(others, -1) + 1


def _raise_best(earlier: Sequence[DigestLine], room: int) -> list[DigestLine]:
    """Raise the worth of the best earlier lines that fit the room.

    Of equals the older line wins. Otherwise only the newest lines of a long conversation would be left in time.
    """
    best: set[int] = set()
    for index in sorted(range(len(earlier)), key=lambda index: -min(earlier[index].worth, DECISION_WORTH)):
        if earlier[index].worth >= 1 and earlier[index].tokens <= room:
            room -= earlier[index].tokens
            best.add(index)
    return [replace(line, worth=line.worth + _KEPT_WORTH * (index in best)) for index, line in enumerate(earlier)]


def _limit_outputs(fresh: Sequence[DigestLine], parts: Sequence[DigestPart]) -> list[DigestLine]:
    """Keep only the best lines of each tool output; of equals the first."""
    seen: Counter[int] = Counter()
    kept = set()
    for index in sorted(range(len(fresh)), key=lambda index: -fresh[index].worth):
        seen[fresh[index].part] += 1
        if seen[fresh[index].part] <= MAX_OUTPUT_LINES or not parts[fresh[index].part].output:
            kept.add(index)
    return [line for index, line in enumerate(fresh) if index in kept]


def _is_question(line: DigestLine) -> bool:
    return bool(detect_traits(line.text) & IS_QUESTION)


def _says_enough(line: DigestLine) -> bool:
    """Tell if a line is worth a place at all. An answered question is, if it names something."""
    body, speaker = _split_label(line.text)
    if line.worth < 0 or _is_small_talk(body) or (_is_question(line) and line.worth < 1 and not _has_name(body)):
        return False
    if _NUMBERS.search(body):
        return True
    says = line.terms - _small_talk_terms() - _speaker_terms(speaker or "")
    says -= _listed_words("decision")[0] | _listed_words("error")[0]
    return len(says) >= (
        MIN_WORDS_WITH_WORTH if line.worth >= 1 else MIN_WORDS if line.worth > 0 else MIN_ASSISTANT_WORDS
    )


@cache
def _speaker_terms(speaker: str) -> frozenset[int]:
    return frozenset(extract_terms(speaker))


def _add_centrality(lines: Sequence[DigestLine]) -> list[float]:
    """Add to the worth of each line its closeness to the whole: the cosine with the sum of all lines.

    A word in some of the lines weighs most. A word in one line or in all weighs nothing, so common words need no list.
    """
    seen = Counter(chain.from_iterable(line.terms for line in lines))
    total = len(lines)
    by_count = {number: (number - 1) * math.log(total / number) ** 2 for number in set(seen.values())}
    weight = {term: by_count[number] for term, number in seen.items()}.__getitem__
    closeness = [sum(map(weight, line.terms)) / math.sqrt(len(line.terms) or 1) for line in lines]
    closest = max(closeness, default=0.0) or 1.0
    return [line.worth + CENTRAL_WORTH * near / closest for line, near in zip(lines, closeness, strict=True)]


def _measure_worth(body: str, speaker: str | None, terms: frozenset[int]) -> float:
    labels = (speaker or "").split(", ")
    role = next((role for role in ("assistant", "tool") if role in labels), None)
    bits = detect_traits(body, role)
    worth = DECISION_WORTH * _mentions("decision", body, terms) + ERROR_WORTH * _mentions("error", body, terms)
    worth += WISH_WORTH * bool(bits & INSTRUCTION_OR_PREFERENCE) + NUMBER_WORTH * bool(bits & NUMBER_OR_TIME)
    worth += QUESTION_WORTH * bool(bits & IS_QUESTION)
    return worth + NAME_WORTH * _has_name(body) + PERSON_WORTH * (role is None and speaker is not None)


def _is_repeat(line: DigestLine, other: DigestLine) -> bool:
    """Tell if one line says no more than the other. Another number, or a "not" in one of them, says something else."""
    mine, yours = line.terms - _common_terms(), other.terms - _common_terms()
    both = mine & yours
    if not both or both not in (mine, yours) or len(both) < MIN_REPEATED_WORDS * len(mine | yours):
        return False
    negated = (line.terms ^ other.terms) & _listed_words("negation")[0]
    return not negated and _NUMBERS.findall(line.text) == _NUMBERS.findall(other.text)


def _has_name(body: str) -> bool:
    return _CODE.search(body) is not None or any(word[0].isupper() for word in _INNER_WORD.findall(body))


def _mentions(what: str, body: str, terms: frozenset[int]) -> bool:
    single, unspaced = _listed_words(what)
    return not single.isdisjoint(terms) or (not body.isascii() and any(word in body for word in unspaced))


def _cut_line(text: str) -> str:
    return text if len(text) <= MAX_LINE_CHARACTERS else text[: MAX_LINE_CHARACTERS - 1].rstrip() + ELLIPSIS


def _make_label(part: DigestPart) -> str:
    """Name the speaker, the kind and the day. The label ends with the first ": " of the line."""
    speaker = shorten_line(part.speaker, _MAX_SPEAKER_CHARACTERS)
    kind = shorten_line(part.kind, _MAX_KIND_CHARACTERS)
    label = ", ".join(filter(None, (speaker, kind, part.day))).replace(": ", ":")
    return f"{label}: " if label else ""


def _split_label(text: str) -> tuple[str, str | None]:
    label = _LABEL.match(text)
    return (text[label.end() :], label[0][:-2]) if label else (text, None)


def _split_summary(text: str) -> list[str]:
    """Return the lines of a summary. A paragraph becomes a line per sentence, so that it need not go at once."""
    found: list[str] = []
    for line in filter(None, map(str.strip, text.split("\n"))):
        if len(line) <= MAX_PARAGRAPH_CHARACTERS:
            found.append(line)
            continue
        label = _LABEL.match(line)
        first = 0
        for _, end in _find_sentences(line, label.end() if label else 0, len(line)):
            found.append(line[first:end].strip())
            first = end
    return found


def _find_sentences(text: str, start: int, end: int) -> list[tuple[int, int]]:
    """Find sentences without splitting after "Dr." or "1.", or between quotes: a line has no words of others alone."""
    spans = find_sentence_spans(text, start, end)
    marks = [len(_QUOTE.findall(text, left, right)) for left, right in spans]
    balanced, quoted = sum(marks) % 2 == 0, False
    found: list[tuple[int, int]] = []
    for (left, right), count in zip(spans, marks, strict=True):
        if found and ((quoted and balanced) or _ends_with_abbreviation(text, *found[-1], left)):
            found[-1] = (found[-1][0], right)
        else:
            found.append((left, right))
        quoted ^= count % 2 == 1
    return found


def _ends_with_abbreviation(text: str, first: int, last: int, following: int) -> bool:
    # The longest abbreviation and the space before it: looking at the whole would take quadratic time in a long text.
    return "\n" not in text[last:following] and _ABBREVIATED_END.search(text[max(first, last - 9) : last]) is not None


def _is_small_talk(text: str) -> bool:
    """Tell if a sentence has only common words and words of greeting, thanking and agreeing."""
    if len(text) > 12 * MAX_SMALL_TALK_WORDS or _NUMBERS.search(text):
        return False
    if count_unspaced_characters(text):
        for phrase in _listed_words("small_talk")[1]:
            text = text.replace(phrase, "")
    terms = extract_terms(text)
    return (
        len(terms) <= MAX_SMALL_TALK_WORDS
        and _small_talk_terms().issuperset(terms)
        and not count_unspaced_characters(text)
    )


@cache
def _common_terms() -> frozenset[int]:
    """Return the stop words of all languages, and the names of roles."""
    roles = frozenset(map(hash_term, ("user", "assistant", "tool", "system")))
    stop_terms = (language.stop_terms for language in load_languages().by_name.values())
    return roles.union(*stop_terms) - _listed_words("negation")[0]


@cache
def _small_talk_terms() -> frozenset[int]:
    """Return the terms of common words and of small talk."""
    return _common_terms() | _listed_words("small_talk")[0] | _listed_words("negation")[0]


@cache
def _listed_words(name: str) -> tuple[frozenset[int], tuple[str, ...]]:
    """Return a list of words: as terms, and as written for scripts without spaces, the longest first."""
    words = load_languages().words[name]
    unspaced = sorted(filter(count_unspaced_characters, words), key=len, reverse=True)
    return frozenset(hash_term(token) for word in words.difference(unspaced) for token in tokenize(word)), tuple(
        unspaced
    )
