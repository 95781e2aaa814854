"""Shorten what was said to its most telling sentences, word for word and without a model."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain

from engrain.core.model.items import FORGOTTEN
from engrain.core.rules.traits import INSTRUCTION_OR_PREFERENCE, IS_QUESTION, NUMBER_OR_TIME, detect_traits
from engrain.core.text.languages import load_languages
from engrain.core.text.passages import find_sentence_spans
from engrain.core.text.small_talk import drop_common_terms, drop_small_talk, is_small_talk, negation_terms
from engrain.core.text.tokenizer import count_unspaced_characters, extract_terms, hash_term, tokenize
from engrain.core.tokens import ELLIPSIS, CountTokens, clip_text, estimate_tokens

SUMMARY_KIND = "summary"  # the kind of a part that is an earlier summary

# What a sentence is worth for what it holds; the names decide nothing else.
DECISION = 4.0
ERROR = 3.0
WISH = 2.0  # a standing order or a liking
CLOSE = 2.0  # for the sentence closest to the whole; less for the others
NUMBER = 1.0
NAME = 1.0
OWN = 0.5  # not said by the assistant or a tool
QUESTION = -1.0
OPEN = 4.0  # a question that nobody has answered yet

EARLIER = 1 / 3  # of the room is for the best of an earlier summary, whatever comes after it
# Words that say something which a line needs: with a sign of worth, without one, and if the assistant said it.
FEWEST, FEW, MORE = 1, 2, 3

OUTPUT = 3  # lines of what a tool put out: it may have many that look alike
LINE = 400  # characters: what is longer is cut
PARAGRAPH = 300  # a longer line of an earlier summary is taken sentence by sentence
AGREES = 1 / 3  # of the words of a summary must be in what it sums up
SAME = 0.7  # of the words of two lines, where one has no word that the other has not

_SPEAKER, _KIND = 80, 40
_FIRST = 1_000.0
_NUMBERS = re.compile(r"\d+")
_LABEL = re.compile(r"[^\n]{1,130}?: ")
# Line ends that are not "\n" would make lines of their own in a prompt.
_ENDS = dict.fromkeys(map(ord, "\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"), " ")
_UNENDED = re.compile(
    r"(?:^\d{1,3}|(?:^|\s)(?:[A-Z]|Dr|Mr|Mrs|Ms|Prof|St|vs|No|Nr|bzw|approx|e\.g|i\.e|z\.B"
    r"|(?:am|vom|zum|bis|ab|der|den|dem) [0-3]?\d))\.$"
)
_INNER_WORD = re.compile(r"(?<=[\w,;.)] )[^\W\d_]\w+")
# Code, paths, addresses, CamelCase, Katakana, and names in the quotes of Chinese and Japanese.
_CODE = re.compile(r"`[^`]+`|\w[./_@]\w|[a-z][A-Z]|[\u30a1-\u30fa\u30fc]{2}|[「『《]")


@dataclass(frozen=True, slots=True)
class DigestPart:
    """Something said or done. `kind` is a word such as "decision" or "error"; with SUMMARY the text is an earlier
    summary, which stays in front and whose lines stay as they are. `day` is told where it is not that of the whole;
    what is `whole` is one line, and of a tool's `output` the best few lines are told."""

    text: str
    speaker: str = ""
    kind: str = ""
    day: str = ""
    whole: bool = False
    output: bool = False


@dataclass(frozen=True, slots=True)
class DigestLine:
    """A line of a digest: a sentence after the name of who said it. All else is worked out from the text alone, but the
    number of the part that it was taken from."""

    text: str
    tokens: int
    terms: frozenset[int]
    worth: float
    part: int = -1


def write_digest(parts: Sequence[DigestPart], limit: int, count: CountTokens = estimate_tokens) -> str:
    """What a reader would want to know of the parts, in their order, in at most `limit` tokens."""
    return join_lines(select_lines(parts, limit, count))


def select_lines(parts: Sequence[DigestPart], limit: int, count: CountTokens = estimate_tokens) -> list[DigestLine]:
    """The most telling sentences of the parts, word for word and in their order. Small talk is left out even if there
    is room, what was forgotten has no line, and what is said twice is told once.

    Nothing is summed up twice: the lines of an earlier summary stay or go as they are, and the best of them stay.
    """
    earlier = [one for number in _places(parts, True) for one in _numbered(parts, number, count)]
    first = _open_from(parts)
    said = (one for number in _places(parts, False) for one in _numbered(parts, number, count))
    asked = (replace(one, worth=one.worth + OPEN) if one.part >= first and _asks(one) else one for one in said)
    fresh = _few([one for one in asked if _tells(one)], parts)
    return choose_lines([*_settled(earlier, int(limit * EARLIER)), *fresh], limit, count, once=True)


def _settled(earlier: Sequence[DigestLine], room: int) -> list[DigestLine]:
    """The same lines, of which those that say most are to stay: of equals the older, or the newest alone would in time
    be all that is told of a long talk."""
    best: set[int] = set()
    for place in sorted(range(len(earlier)), key=lambda place: -min(earlier[place].worth, DECISION)):
        if earlier[place].worth >= 1 and earlier[place].tokens <= room:
            room -= earlier[place].tokens
            best.add(place)
    return [replace(one, worth=one.worth + _FIRST * (place in best)) for place, one in enumerate(earlier)]


def _few(fresh: Sequence[DigestLine], parts: Sequence[DigestPart]) -> list[DigestLine]:
    """The same lines, but of each output only the best; of equals the first."""
    seen: Counter[int] = Counter()
    told = set()
    for place in sorted(range(len(fresh)), key=lambda place: -fresh[place].worth):
        seen[fresh[place].part] += 1
        if seen[fresh[place].part] <= OUTPUT or not parts[fresh[place].part].output:
            told.add(place)
    return [one for place, one in enumerate(fresh) if place in told]


def _places(parts: Sequence[DigestPart], summaries: bool) -> list[int]:
    return [number for number, part in enumerate(parts) if (part.kind == SUMMARY_KIND) == summaries]


def _numbered(parts: Sequence[DigestPart], number: int, count: CountTokens) -> list[DigestLine]:
    return [replace(one, part=number) for one in split_lines(parts[number], count) if FORGOTTEN not in one.text]


def _open_from(parts: Sequence[DigestPart]) -> int:
    """The first part after which nobody else has spoken: a question from there on waits for its answer."""
    last = next((part.speaker for part in reversed(parts) if part.kind != SUMMARY_KIND), "")
    others = (number for number in reversed(range(len(parts))) if parts[number].speaker != last)
    return next(others, -1) + 1


def _asks(one: DigestLine) -> bool:
    return bool(detect_traits(one.text) & IS_QUESTION)


def _tells(one: DigestLine) -> bool:
    """Whether a line says enough to be told at all. A question that was answered does if it names something."""
    body, speaker = _parted(one.text)
    if one.worth < 0 or is_small_talk(body) or (_asks(one) and one.worth < 1 and not _named(body)):
        return False
    if _NUMBERS.search(body):
        return True
    says = drop_small_talk(one.terms) - _terms_of(speaker or "") - _signs("decision")[0] - _signs("error")[0]
    return len(says) >= (FEWEST if one.worth >= 1 else FEW if one.worth > 0 else MORE)


@cache
def _terms_of(speaker: str) -> frozenset[int]:
    return frozenset(extract_terms(speaker))


def split_lines(part: DigestPart, count: CountTokens) -> list[DigestLine]:
    """Everything that a digest may take from a part."""
    text = part.text.translate(_ENDS)
    if part.kind == SUMMARY_KIND:
        found = _summary_lines(text)
    elif part.whole:
        found = [_label(part) + " ".join(text.split())]
    else:
        label = _label(part)
        said = [text[start:end] for start, end in _sentences(text, 0, len(text))]
        found = [one if label and one.startswith(label) else label + one for one in said]
    return [make_line(one, count) for one in dict.fromkeys(map(_cut, found))]


def make_line(text: str, count: CountTokens) -> DigestLine:
    text = _cut(text)
    body, speaker = _parted(text)
    found = frozenset(extract_terms(text))
    return DigestLine(text, count(text + "\n"), found, _worth(body, speaker, found))


def _parted(text: str) -> tuple[str, str | None]:
    label = _LABEL.match(text)
    return (text[label.end() :], label[0][:-2]) if label else (text, None)


def choose_lines(
    candidates: Sequence[DigestLine], limit: int, count: CountTokens, once: bool = False
) -> list[DigestLine]:
    """As many lines as fit, those of most worth, in their order; of equals the newer, of repeats the first. With `once`
    what is nearly the same counts as a repeat."""
    seen: dict[str, DigestLine] = {}
    for one in candidates:
        seen.setdefault(one.text, one)
    distinct = list(seen.values())
    if not once and sum(one.tokens for one in distinct) <= limit and count(join_lines(distinct)) <= limit:
        return distinct
    worth = _values(distinct)
    ranked = sorted(range(len(distinct)), key=lambda place: (-worth[place], -place))
    taken: list[int] = []
    room = limit
    for place in ranked:
        if distinct[place].tokens > room:
            continue
        if not once or not any(_same(distinct[place], distinct[other]) for other in taken):
            taken.append(place)
            room -= distinct[place].tokens
    # Lines may count more together than apart. Twice as many go each time: a counter may be far off.
    more = 1
    while taken and count(join_lines([distinct[place] for place in sorted(taken)])) > limit:
        del taken[-more:]
        more *= 2
    if taken:
        return [distinct[place] for place in sorted(taken)]
    cut = clip_text(distinct[ranked[0]].text, limit, count) if ranked else ""
    return [make_line(cut, count)] if cut else []


def join_lines(some: Iterable[DigestLine]) -> str:
    return "\n".join(one.text for one in some)


def shares_words(summary: str, texts: Iterable[str]) -> bool:
    """Whether a summary speaks of the same things, or is something else, such as an excuse."""
    common = load_languages().stop_terms
    own = set(extract_terms(summary)) - common
    said = {one for text in texts for one in extract_terms(text)}
    return bool(own) and len(own & said) >= AGREES * len(own)


def _values(some: Sequence[DigestLine]) -> list[float]:
    """The worth of each line and how close it is to the whole: its cosine with the sum of all lines.

    A word weighs most that is in some of the lines: nothing in one of them or in all. So common words need no list.
    """
    seen = Counter(chain.from_iterable(one.terms for one in some))
    total = len(some)
    by_count = {number: (number - 1) * math.log(total / number) ** 2 for number in set(seen.values())}
    weight = {one: by_count[number] for one, number in seen.items()}.__getitem__
    close = [sum(map(weight, one.terms)) / math.sqrt(len(one.terms) or 1) for one in some]
    closest = max(close, default=0.0) or 1.0
    return [one.worth + CLOSE * near / closest for one, near in zip(some, close, strict=True)]


def _worth(body: str, speaker: str | None, found: frozenset[int]) -> float:
    role = next((role for role in ("assistant", "tool") if role in (speaker or "").split(", ")), None)
    bits = detect_traits(body, role)
    worth = DECISION * _mentions("decision", body, found) + ERROR * _mentions("error", body, found)
    worth += (
        WISH * bool(bits & INSTRUCTION_OR_PREFERENCE)
        + NUMBER * bool(bits & NUMBER_OR_TIME)
        + QUESTION * bool(bits & IS_QUESTION)
    )
    return worth + NAME * _named(body) + OWN * (role is None and speaker is not None)


def _same(one: DigestLine, other: DigestLine) -> bool:
    """Whether one says no more than the other; with another number, or a "not" in one alone, it says something else."""
    mine, yours = drop_common_terms(one.terms), drop_common_terms(other.terms)
    both = mine & yours
    if not both or both not in (mine, yours) or len(both) < SAME * len(mine | yours):
        return False
    turned = (one.terms ^ other.terms) & negation_terms()
    return not turned and _NUMBERS.findall(one.text) == _NUMBERS.findall(other.text)


def _named(body: str) -> bool:
    return _CODE.search(body) is not None or any(word[0].isupper() for word in _INNER_WORD.findall(body))


def _mentions(what: str, body: str, found: frozenset[int]) -> bool:
    single, runs = _signs(what)
    return not single.isdisjoint(found) or (not body.isascii() and any(run in body for run in runs))


@cache
def _signs(what: str) -> tuple[frozenset[int], tuple[str, ...]]:
    """The words that tell of a decision or an error: as terms, and as they are written where words have no spaces."""
    words = load_languages().words[what]
    single = frozenset(
        hash_term(one) for word in words if not count_unspaced_characters(word) for one in tokenize(word)
    )
    return single, tuple(sorted(word for word in words if count_unspaced_characters(word)))


def _cut(text: str) -> str:
    return text if len(text) <= LINE else text[: LINE - 1].rstrip() + ELLIPSIS


def _label(part: DigestPart) -> str:
    """Ends with the first ": " of the line, by which it is found again."""
    named = (_one_line(part.speaker, _SPEAKER), _one_line(part.kind, _KIND), part.day)
    label = ", ".join(filter(None, named)).replace(": ", ":")
    return f"{label}: " if label else ""


def _one_line(name: str, limit: int) -> str:
    short = " ".join(name.split())
    return short if len(short) <= limit else short[: limit - 1] + ELLIPSIS


def _summary_lines(text: str) -> list[str]:
    """Lines as they stand; a paragraph becomes a line for each sentence, so that not all of it must go at once."""
    found: list[str] = []
    for one in filter(None, map(str.strip, text.split("\n"))):
        if len(one) <= PARAGRAPH:
            found.append(one)
            continue
        label = _LABEL.match(one)
        spans = _sentences(one, label.end() if label else 0, len(one))
        first = 0
        for _, end in spans:
            found.append(one[first:end].strip())
            first = end
    return found


def _sentences(text: str, start: int, end: int) -> list[tuple[int, int]]:
    """Sentences that are not torn apart after "Dr." or "1."."""
    found: list[tuple[int, int]] = []
    for left, right in find_sentence_spans(text, start, end):
        if found and _goes_on(text, *found[-1], left):
            found[-1] = (found[-1][0], right)
        else:
            found.append((left, right))
    return found


def _goes_on(text: str, first: int, last: int, following: int) -> bool:
    # The longest abbreviation and the space before it: to look at the whole would take the square of a long text.
    return "\n" not in text[last:following] and _UNENDED.search(text[max(first, last - 9) : last]) is not None
