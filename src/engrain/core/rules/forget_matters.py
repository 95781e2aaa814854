"""Compare the matter of a request to forget with what was said: shared words, values, kinds of things and people."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from importlib import resources

from engrain.core.rules.change_cues import are_of_others, find_people, read_cues
from engrain.core.rules.forget_requests import fold_accents, list_matter_words
from engrain.core.text.tokenizer import tokenize

MIN_PREFIX = 5  # letters that two forms of a word share: "embarazo", "embarazada"
MIN_DIGITS, MIN_DIGIT_SHARE = 3, 0.3  # of a number that a request names by a part
MIN_VALUE = 5  # letters of a value that may be part of a longer word
_CACHED_TEXTS = 4_096
MAX_CHARACTERS = 600  # of a text; what follows is not compared
_FIRST_PERSON = r"i|i'm|im|i've|i'd|i'll|we|we're|we've|ich|wir|yo|je|nous"
_MINE = (
    r"my|mine|me|our|ours|us|mein\w*|mir|mich|uns\w*|mi|mis|soy|estoy|tengo|mon|ma|mes|moi|notre|nos|" + _FIRST_PERSON
)
_SPEAKS = re.compile(rf"\b(?:{_MINE})\b|\bj'", re.IGNORECASE)
_SPEAKS_FIRST = re.compile(rf"^\W*(?:\w+ )?(?:{_FIRST_PERSON}|on)\b|^\W*(?:\w+ )?j'", re.IGNORECASE)
# Of the speaker, but not "what I told you".
_OWN = re.compile(
    r"\b(?:my|mine|our|ours|mein\w*|unser\w*|mi|mis|mon|ma|mes|notre|nos|(?:about|of) (?:me|us)|us \w+ing|von mir|"
    r"de mí|ich|soy|je suis|i'm|i've|we're|i)\b(?! (?:said|told|mention|ever|wrote|shared|typed|just|dije|habe|hab|"
    r"gesagt))|\bj'",
    re.IGNORECASE,
)
_FOLLOWS = re.compile(
    r"^\W*(?:and |but |though |so |also )?(?:she|he|they|it|er|sie|ella|él|elle|il|she's|he's|they're|she'd|he'd|"
    r"hes|shes|his|her|its|their)\b",
    re.IGNORECASE,
)
_BESIDE = re.compile(
    r"\b(?:other|second|another|andere\w*|zweite\w*|otr[oa]s?|segund[oa]|autre|deuxième|also|too|auch|también|aussi)\b",
    re.IGNORECASE,
)
_ALSO = re.compile(r"\b(?:also|too|auch|también|aussi)\b", re.IGNORECASE)
_ANOTHER_ONE = re.compile(r"^\W*(?:and |also )?(?:one|mine|(?:the|my) \w+ one)(?:'s)?\b", re.IGNORECASE)
_ARTICLE = re.compile(r"^\W*(?:the|die|der|das|la|el|los|las|le|les|l'|un|une|ein\w*)\b", re.IGNORECASE)
_JOINED = re.compile(r"\b(?:and|und|y|et)\b|,")
_NAME = re.compile(r"[^\W\d_]+")
_AFTER_ARTICLE = re.compile(
    r"\b(?:the|a|an|my|our|your|that|this|mein\w*|unser\w*|der|die|das|dem|den|des|ein\w*|el|la|los|las|mi|mis|un|una|le|"
    r"les|mon|ma|mes|du)\s+$|\bl'$",
    re.IGNORECASE,
)
_TITLE = re.compile(
    r"(?:mr|mrs|ms|dr|frau|herr|father|sister|prof|auntie|aunt|uncle|onkel|tante|tío|tía|mme)$", re.IGNORECASE
)
_MAX_WORD = 40
_BEFORE_HEAD = re.compile(r"\b([a-z]+)(?:'s|s')?[ -]$")
_BEHIND_HEAD = re.compile(
    r" (?:of|for|with|at|von|vom|beim|bei|mit|zum|zur|fur|del?|con|para|du|des|d'|de l'|avec|chez)(?: |(?<='))"
    r"(?:(?:the|my|our|dem|der|den|mein\w*|la|el|los|las|mi|mis|le|les|l'|mon|ma|mes) ?)?([a-z]+)"
)
_ADJECTIVE = re.compile(r" ([a-z]+)")
_GENERIC = ("number", "nummer", "numero", "address", "direccion")
_ROMANCE = (
    "numero",
    "cita",
    "rendez-vous",
    "mail",
    "correo",
    "courriel",
    "telefono",
    "telephone",
    "adresse",
    "direccion",
)
_OF_THINGS = "price"  # the kind that things have: "what I paid for the car"
_SEPARATOR = re.compile(r"(?<=\d)[ .,/-](?=\d)")
_DIGITS = re.compile(r"\d+")


Words = tuple[frozenset[str], tuple[str, ...]]  # whole ones, and how others begin


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of thing: words that name it, words that state it, and the shape of its values."""

    names: Words
    signs: Words
    shape: re.Pattern[str] | None
    heads: Words  # that many kinds share: "number"


@dataclass(frozen=True)
class Topic:
    """The words, numbers and kinds that a request names, read once for all candidates."""

    text: str
    named: tuple[str, ...]  # as they are written
    everything: bool
    called: str = ""  # the name of its only thing, as other texts have it

    @cached_property
    def words(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(word for one in self.named for word in tokenize(one)[:1]))

    @cached_property
    def is_past(self) -> bool:
        """Tell if the matter is of earlier times: "my old job"."""
        return _load_past().search(fold_accents(self.text)) is not None

    @cached_property
    def values(self) -> tuple[str, ...]:
        return tuple(one for one in self.named if any(mark.isdigit() for mark in one))

    @cached_property
    def people(self) -> frozenset[str]:
        return find_people(self.text)

    @cached_property
    def is_own(self) -> bool:
        return _OWN.search(self.text) is not None

    @cached_property
    def kinds(self) -> tuple[str, ...]:
        words = {fold_accents(one) for one in _NAME.findall(self.text)} | set(self.words)
        return tuple(name for name, kind in load_kinds().items() if any(_has(kind.names, one) for one in words))

    @cached_property
    def qualifiers(self) -> tuple[str, ...]:
        """The words that tell which of several it is: "passport number", "Kontonummer", "cita con el tatuador"."""
        named = {fold_accents(one).removesuffix("'s") for one in self.named} - _load_words("neutral")
        return tuple(one for one in _find_qualifiers(" ".join(fold_accents(self.text).split())) if one in named)

    @cached_property
    def things(self) -> tuple[str, ...]:
        """The words for what has a price: "what I paid for the car"."""
        named = set(map(fold_accents, self.named))
        words = map(fold_accents, _NAME.findall(self.text) if _OF_THINGS in self.kinds else ())
        return tuple(one for one in words if (kinds := _find_named(one)) or one in named if _OF_THINGS not in kinds)

    def fits_time(self, text: str, *, ended: bool) -> bool:
        """Tell if a text is of earlier times, where the matter is. `ended` texts do not hold any more."""
        if not self.is_past or ended:
            return True
        words = _load_words("was") | _load_words("past")
        return not words.isdisjoint(fold_accents(one) for one in _NAME.findall(text[:MAX_CHARACTERS]))

    def fits_qualifiers(self, text: str) -> bool:
        """Tell if a text has the words that tell which one is meant, or states the kinds or people that they name.

        Of "my passport number" a phone number has only the number.
        """
        if not self.qualifiers and not self.things:
            return True
        text = text[:MAX_CHARACTERS]
        held, people = tokenize(text), find_people(text)

        def fits(word: str) -> bool:
            stated = any(is_of_kind(name, text) for name in _find_named(word))
            return stated or any(_is_same(word, one) for one in held) or not find_people(word).isdisjoint(people)

        return all(map(fits, self.qualifiers)) and (not self.things or any(map(fits, self.things)))

    def cover(self, text: str) -> frozenset[str]:
        """Return the words of the matter that a text has, in whatever form."""
        held = tokenize(text[:MAX_CHARACTERS])
        if self.called and self.called in held:
            return frozenset(self.words)
        return frozenset(word for word in self.words if any(_is_same(word, one) for one in held))

    def has_value(self, text: str) -> bool:
        """Tell if a text has a number or code that the request names, whole or by a part."""
        text = text[:MAX_CHARACTERS]
        held, runs = set(tokenize(text)), _DIGITS.findall(_SEPARATOR.sub("", text))
        return any(
            one.lower() in held
            or (len(one) >= MIN_VALUE and one.lower() in text.lower())
            or any(_is_part(digits, run) for digits in ["".join(_DIGITS.findall(one))] for run in runs)
            for one in self.values
        )

    def find_names(self, texts: Sequence[str]) -> list[str]:
        """Return the words that name somebody or something: capitals, here or where it was told of."""
        found = [
            match[0]
            for match in _NAME.finditer(self.text)
            if match[0][0].isupper()
            and (match[0] in self.named or f"{match[0]}'s" in self.named)
            and not _TITLE.match(match[0])
            and not _AFTER_ARTICLE.search(self.text[: match.start()])
        ]
        texts = [one[:MAX_CHARACTERS] for one in texts]
        lower = [one for one in self.named if one[0].islower() and any(_is_name_in(one, text) for text in texts)]
        return [word for one in (*found, *lower) for word in tokenize(one)[:1]]

    def is_of_other(self, text: str) -> bool:
        """Tell if a text is about somebody whom the matter does not name: "my divorce", and that of a sister."""
        if _SPEAKS_FIRST.match(text[:MAX_CHARACTERS]):
            return False
        held = read_cues(text).people
        named = {fold_accents(one) for one in _NAME.findall(text[:MAX_CHARACTERS]) if one[0].isupper()}
        return bool(held) and held.isdisjoint(self.people) and named.isdisjoint(map(fold_accents, self.named))

    def is_close(self, text: str, texts: Sequence[str]) -> bool:
        """Tell if a text has more of the matter than who it is about: of "all about the row with Ada" the row."""
        names = set(self.find_names(texts))
        rest = {word for one in self.named if not find_people(one) for word in tokenize(one)[:1]} - names
        return not rest or not names or not rest.isdisjoint(self.cover(text)) or self.states_kind(text)

    def is_one_thing(self, texts: Sequence[str]) -> bool:
        """Tell if several statements are one thing: of one name, all about a matter, or each its own part of it."""
        covered, follows = [self.cover(one) for one in texts], [is_continued(one) for one in texts]
        names = [
            name
            for name in self.find_names(texts)
            if all(name in tokenize(one) or more for one, more in zip(texts, follows, strict=True))
        ]
        if names:
            return len({_describe(one, names[0]) for one in texts} - {None}) < 2  # "Jo from work", "my cousin Jo"
        cues = [read_cues(one) for one in texts]
        if any(are_of_others(one, other) for k, one in enumerate(cues) for other in cues[:k]):
            return False
        if self.everything:
            same = bool(self.called) or len({bool(one.people) for one in cues}) == 1
            return same and all(has or more for has, more in zip(covered, follows, strict=True))
        parted = len(self.words) > 1 and not frozenset.intersection(*covered)
        return parted and self.is_joined and all(self.states_kind(one) or self.cover(one) for one in texts)

    @cached_property
    def is_joined(self) -> bool:
        """Tell if the matter has several parts: "the diagnosis and the pills"."""
        return _JOINED.search(self.text) is not None

    def states_kind(self, text: str) -> bool:
        return any(any(state_kind(name, text)) for name in self.kinds)


def read_topic(text: str, everything: bool) -> Topic:
    text = text[:MAX_CHARACTERS]
    named = list_matter_words(text)
    lasting = [one for one in named if fold_accents(one) not in _load_words("past")]
    return Topic(text, tuple(lasting if lasting and _load_past().search(fold_accents(text)) else named), everything)


def is_own_words(text: str) -> bool:
    return _SPEAKS.search(text[:MAX_CHARACTERS]) is not None


def is_continued(text: str) -> bool:
    """Tell if a text goes on about somebody of the text before: "she kept the house"."""
    return _FOLLOWS.match(text[:MAX_CHARACTERS]) is not None


def is_beside(text: str) -> bool:
    """Tell if a text puts something beside another thing of its kind."""
    return _BESIDE.search(text[:MAX_CHARACTERS]) is not None


def is_another_one(text: str) -> bool:
    return _ANOTHER_ONE.match(text[:MAX_CHARACTERS]) is not None


def is_also(text: str) -> bool:
    return _ALSO.search(text[:MAX_CHARACTERS]) is not None and _SPEAKS_FIRST.match(text[:MAX_CHARACTERS]) is None


def are_apart(one: str, other: str) -> bool:
    """Tell if two texts say that they are of two things: "cita con el notario", "cita con la matrona", or two Sams."""
    first, second = (
        set(_find_qualifiers(" ".join(fold_accents(text[:MAX_CHARACTERS]).split()))) - _load_words("neutral")
        for text in (one, other)
    )
    if first and second and first.isdisjoint(second):
        return True
    names = {match[0] for match in _NAME.finditer(one[:MAX_CHARACTERS]) if match[0][0].isupper()}
    shared = [fold_accents(name) for name in sorted(names) if re.search(rf"\b{name}\b", other[:MAX_CHARACTERS])]
    return any(len({_describe(one, name), _describe(other, name)} - {None}) > 1 for name in shared)


def share_words(one: str, other: str) -> bool:
    """Tell if two texts have a word in common that is no name: "yoga"."""
    first, second = (set(list_matter_words(text[:MAX_CHARACTERS])) for text in (one, other))
    return any(not word.istitle() and not find_people(word) for word in first & second)


def is_of_nobody(text: str) -> bool:
    """Tell if a text is about a thing that it gives to nobody: "the shop's number is …"."""
    return _ARTICLE.match(text[:MAX_CHARACTERS]) is not None and not is_own_words(text)


@lru_cache(_CACHED_TEXTS)
def state_kind(name: str, text: str) -> tuple[bool, bool]:
    """Return whether a text has a word that states things of a kind, and a value of its shape."""
    kind, text = load_kinds()[name], text[:MAX_CHARACTERS]
    return any(_has(kind.signs, one) for one in tokenize(text)), bool(kind.shape and kind.shape.search(text))


@lru_cache(_CACHED_TEXTS)
def is_of_kind(name: str, text: str) -> bool:
    """Tell if a text states a kind, not only a number of another kind: "my passport number is …", "my number is …"."""
    kind, words = load_kinds()[name], tokenize(text[:MAX_CHARACTERS])
    if any(_has(kind.signs, one) and not _has(kind.heads, one) for one in words):
        return True
    if not any(state_kind(name, text)) or any(_has(kind.heads, one) and not _has(kind.names, one) for one in words):
        return False
    rivals = (one for other, one in load_kinds().items() if other != name and _share(one.heads, kind.heads))
    return not any(_has(one.signs, word) and not _has(one.heads, word) for one in rivals for word in words)


@lru_cache(_CACHED_TEXTS)
def find_kinds(text: str) -> frozenset[str]:
    """Return the kinds of things that a text states."""
    return frozenset(name for name in load_kinds() if is_of_kind(name, text))


@lru_cache(_CACHED_TEXTS)
def _find_qualifiers(text: str) -> tuple[str, ...]:
    """Return the words beside those that many things share. `text` is folded."""
    found: list[str] = []
    for match in _load_heads().finditer(text):
        before = _BEFORE_HEAD.search(text, max(0, match.start() - _MAX_WORD), match.start())
        behind = _BEHIND_HEAD.match(text, match.end())
        if behind is None and match[0] in _ROMANCE:  # "correo profesional"
            behind = _ADJECTIVE.match(text, match.end())
        generic = match[0] in _GENERIC  # "phone number", but not "adresse mail"
        beside = (one[1] for one in (before, behind) if one and (generic or not _load_heads().fullmatch(one[1])))
        found += [match[0], *beside] if match["part"] else beside
    return tuple(found)


@lru_cache(_CACHED_TEXTS)
def _find_named(word: str) -> tuple[str, ...]:
    """Return the kinds that a word names."""
    return tuple(name for name, kind in load_kinds().items() if _has(kind.names, word))


def _share(one: Words, other: Words) -> bool:
    return not one[0].isdisjoint(other[0]) or not set(one[1]).isdisjoint(other[1])


def _is_part(digits: str, run: str) -> bool:
    whole = len(digits) > 1 and digits == run
    return whole or (len(digits) >= max(MIN_DIGITS, MIN_DIGIT_SHARE * len(run)) and digits in run)


def _is_same(word: str, other: str) -> bool:
    if word == other or word.rstrip("s") == other.rstrip("s"):
        return True
    return len(word) >= MIN_PREFIX and len(other) >= MIN_PREFIX and word[:MIN_PREFIX] == other[:MIN_PREFIX]


def _is_name_in(word: str, text: str) -> bool:
    at = text.find(word.capitalize())
    return at > 0 and not text[:at].rstrip().endswith((".", "!", "?")) and not text[at - 1].isalnum()


def _describe(text: str, name: str) -> str | None:
    """Return how a text tells who somebody is: by the word before the name, or by "from work" behind it."""
    found = re.search(
        rf"(\w+)?\W*\b{re.escape(name)}\b(?:\s+(?:from|at|vom|von|aus|del|de|du)\s+(?:the |my |der |la |le )?(\w+))?",
        fold_accents(text[:MAX_CHARACTERS]),
    )
    if not found:
        return None
    people = find_people(found[1]) if found[1] else frozenset()
    return next(iter(sorted(people)), found[2])


def _has(words: Words, word: str) -> bool:
    return len(word) > 1 and (word in words[0] or word.startswith(words[1]))


@cache
def load_kinds() -> dict[str, Kind]:
    return {
        name: Kind(
            _read_list(one["names"]),
            _read_list(one["signs"]),
            re.compile(one["shape"]) if one.get("shape") else None,
            _read_list(one.get("heads", "")),
        )
        for name, one in _load_tables().items()
        if "names" in one
    }


@cache
def _load_words(name: str) -> frozenset[str]:
    return frozenset(fold_accents(_load_tables()["words"][name]).split())


@cache
def _load_past() -> re.Pattern[str]:
    words = "|".join(sorted(_load_words("past")))
    return re.compile(
        rf"\b(?:my|our|the|\w+'s|mein\w*|unser\w*|de[rmn]|die|das|mi|mis|el|la|mon|ma|mes|l'|le) ?(?:{words}) [a-z]|"
        r"\b(?:mi|mis|el|la) \w+ (?:anterior|antigu[oa]|viej[oa])\b"
    )


@cache
def _load_heads() -> re.Pattern[str]:
    words = "|".join(sorted(_load_words("heads"), key=len, reverse=True))
    return re.compile(rf"\b(?P<part>[a-z]{{3,}}?)?(?:{words})s?\b")


@cache
def _load_tables() -> dict[str, dict[str, str]]:
    file = resources.files("engrain.core") / "data" / "forget_kinds.toml"
    return tomllib.loads(file.read_text("utf-8"))


def _read_list(text: str) -> Words:
    words = fold_accents(text).split()
    starts = tuple(one[:-1] for one in words if one.endswith("*"))
    return frozenset(one for one in words if not one.endswith("*")), starts
