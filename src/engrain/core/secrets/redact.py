"""Find keys, card numbers, mail addresses, phone numbers and IBANs in a text, and put marks in their place."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, get_args

from engrain.core.errors import InvalidInput
from engrain.core.secrets.credentials import find_credentials
from engrain.core.secrets.named import is_secret_name
from engrain.core.secrets.personal import find_phones, is_phone_name, passes_luhn

PrivateKind = Literal["keys", "cards", "mails", "phones", "iban"]
PRIVATE_KINDS: tuple[PrivateKind, ...] = get_args(PrivateKind)
# Where two overlap, the mark of the one that comes first here stands for both.
MARKS: Mapping[PrivateKind, str] = {
    "keys": "«key»",
    "iban": "«iban»",
    "cards": "«card»",
    "mails": "«mail»",
    "phones": "«phone»",
}
_LONG_NUMBERS = (10**12, 10**19)  # a card has 13 to 19 digits
_SHORT = 12  # letters of a name: nothing private is a word that short, and most fields are
_PLACED = frozenset(MARKS.values())
RedactFunction = Callable[[str], str]

# Every pattern begins where the character before is not one of its own and takes a bounded number of characters, so
# that a text of any kind is read in linear time. Those that can begin with a character and look back after it: the
# engine then leaps from one such character to the next. Scripts without spaces may stand right beside what is found.
_ASCII = "A-Za-z0-9_"
_UNSPACED = "\u2e80-\u9fff\uac00-\ud7af\uff00-\uffef"
_SPACES = " \xa0\u2009\u202f"
_BETWEEN = _SPACES + "-"
_CARDS = re.compile(
    rf"\d(?<![{_ASCII}.-]\d)(?:\d{{12,18}}|\d{{3}}([-.{_SPACES}])"
    rf"(?:\d{{4}}\1\d{{4}}\1(?:\d{{4}}(?:\1\d{{1,3}})?|\d{{2}})|\d{{6}}\1\d{{4,5}}))(?![{_ASCII}-]|\.\d)"
)
_ISSUERS = re.compile(
    r"4(?:\d{12}|\d{15}|\d{18})|5[1-5]\d{14}|2(?:22[1-9]|2[3-9]\d|[3-6]\d\d|7[01]\d|720)\d{12}|3[47]\d{13}"
    r"|6(?:011|5\d\d|4[4-9]\d)\d{12,15}|3(?:0[0-5]|[689]\d)\d{11,16}|35(?:2[89]|[3-8]\d)\d{12,15}|62\d{14,17}"
    r"|(?:50|5[6-8]|6\d)\d{11,17}"
)
_HOST = r"@(?:{letter}(?:{inner}{{0,61}}{letter})?\.){{1,8}}{top}{{2,24}}"
_MAILS = (
    re.compile(
        rf"(?:(?<![\w.%+-])|(?<=[{_UNSPACED}]))[A-Za-z0-9_%+-](?:[A-Za-z0-9_.%+'-]{{0,62}}[A-Za-z0-9_%+-])?"
        + _HOST.format(letter="[A-Za-z0-9]", inner="[A-Za-z0-9-]", top="[A-Za-z]")
        + rf"(?:(?![\w@])|(?=[{_UNSPACED}]))"
    ),
    re.compile(
        r"(?:(?<![\w.%+-])[\w%+-](?:[\w.%+'-]{0,62}[\w%+-])?|\"[^\"@\n]{1,62}\")"
        + _HOST.format(letter=r"[^\W_]", inner=r"[\w-]", top=r"[^\W\d_]")
        + r"(?![\w@])"
    ),
)
# In a query of a URL, and as people write it against robots: ana [at] example [dot] org.
_WRITTEN_OUT = re.compile(
    r"(?<![\w.+-])[A-Za-z0-9_.+-]{1,64}(?:%40| ?[\[(]at[\])] ?)"
    r"(?:[A-Za-z0-9-]{1,63}(?:\.| ?[\[(]dot[\])] ?)){1,8}[A-Za-z]{2,24}(?!\w)",
    re.IGNORECASE,
)
_PICTURE = re.compile(r"@\dx\.[a-z]{3,4}$")  # icon@2x.png
_LOGIN = re.compile(r"://[^\s/?#]*$")
_LONGEST_LOGIN = 330
_IBANS = re.compile(rf"\d(?<=[A-Za-z]{{2}}\d)(?<![A-Za-z0-9][A-Za-z]{{2}}\d)\d(?=[{_SPACES}-]?[A-Za-z0-9])")
_IBAN_SIZES: Mapping[str, int] = {
    code: int(size)
    for part in (
        "AD24 AE23 AL28 AT20 AZ28 BA20 BE16 BG22 BH22 BR29 BY28 CH21 CR22 CY28 CZ24 DE22 DK18 DO28 EE20 EG29 ES24",
        "FI18 FO18 FR27 GB22 GE22 GI23 GL18 GR27 GT28 HR21 HU28 IE22 IL23 IQ23 IS26 IT27 JO30 KW30 KZ20 LB28 LC32",
        "LI21 LT20 LU20 LV21 LY25 MC27 MD24 ME22 MK19 MR27 MT31 MU30 NL18 NO15 PK24 PL28 PS29 PT25 QA29 RO24 RS22",
        "SA24 SC31 SE24 SI19 SK24 SM27 ST25 SV28 TL23 TN24 TR26 UA29 VA22 VG24 XK20",
    )
    for code, size in ((one[:2], one[2:]) for one in part.split())
}


class PrivateSpan(NamedTuple):
    start: int
    end: int
    kind: PrivateKind


def make_redactor(wanted: object) -> RedactFunction | None:
    """From the names of what is private, a function of one's own, or a list of both; None for nothing."""
    parts = [wanted] if isinstance(wanted, str) or callable(wanted) else wanted
    if parts is None:
        return None
    if not isinstance(parts, (list, tuple)):
        raise InvalidInput(f"redact takes a list of {', '.join(PRIVATE_KINDS)}, or a function, not {wanted!r:.80}.")
    own = [one for one in parts if callable(one)]
    names = [one for one in parts if not callable(one)]
    for name in names:
        if name not in PRIVATE_KINDS:
            raise InvalidInput(f"redact does not know {name!r:.80}. Known: {', '.join(PRIVATE_KINDS)}; or a function.")
    if not parts:
        return None
    kinds = tuple(names)

    def redact(text: str) -> str:
        text = redact_text(text, kinds)
        for function in own:
            text = function(text)
            if not isinstance(text, str):
                raise InvalidInput(f"the redact function gave a {type(text).__name__}; it must give a text.")
        return text

    return redact


def redact_text(text: str, kinds: Sequence[PrivateKind] = PRIVATE_KINDS) -> str:
    parts: list[str] = []
    at = 0
    for found in find_private(text, kinds):
        parts += text[at : found.start], MARKS[found.kind]
        at = found.end
    return "".join((*parts, text[at:])) if parts else text


def redact_json(value: Any, redact: RedactFunction) -> Any:
    """The same with every text in it redacted, names and long numbers too. Two names that become one are numbered."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, Mapping):
        found: dict[Any, Any] = {}
        again: Counter[Any] = Counter()
        for name, one in value.items():
            kept = _redacted_name(name, redact)
            while kept in found:
                again[kept] += 1
                kept = f"{kept} {again[kept] + 1}"
            found[kept] = _redacted_as(name, one, redact)
        return found
    if isinstance(value, int) and _LONG_NUMBERS[0] <= value < _LONG_NUMBERS[1]:
        text = str(value)
        return value if (kept := redact(text)) == text else kept
    return [redact_json(one, redact) for one in value] if isinstance(value, (list, tuple)) else value


def _redacted_name(name: Any, redact: RedactFunction) -> Any:
    plain = not isinstance(name, str) or (len(name) <= _SHORT and name.isidentifier())
    return name if plain else redact(name)


def _redacted_as(name: Any, value: Any, redact: RedactFunction) -> Any:
    """By its name too: {"password": "hunter2"} and {"pin": 4711} give away what the value alone does not."""
    value = redact_json(value, redact)
    told = isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool))
    if not told or not isinstance(name, str) or not (is_secret_name(name) or is_phone_name(name)):
        return value
    before, after = f'{name}: "', '"'
    text = str(value)
    whole = redact(before + text + after)
    named = whole.startswith(before) and whole.endswith(after)
    kept = whole[len(before) : -1] if named else text
    return value if kept == text else kept


def find_private(text: str, kinds: Sequence[PrivateKind] = PRIVATE_KINDS) -> list[PrivateSpan]:
    """In order; those that overlap are one. A mark that stands in the place of one is none."""
    order = [kind for kind in MARKS if kind in kinds]
    # Of all letters this one alone has two in lower case, and the places would not agree.
    lower = text.replace("İ", "I").lower()
    every = (found for kind in order for found in _FINDERS[kind](text, lower))
    joined: list[PrivateSpan] = []
    for one in sorted((one for one in every if text[one.start : one.end] not in _PLACED), key=lambda one: one[:2]):
        last = joined[-1] if joined else None
        if last and one.start < last.end:
            kind = min(last.kind, one.kind, key=order.index)
            joined[-1] = PrivateSpan(last.start, max(last.end, one.end), kind)
        else:
            joined.append(one)
    return joined


def _keys(text: str, lower: str) -> Iterator[PrivateSpan]:
    return (PrivateSpan(*span, "keys") for span in find_credentials(text, lower))


def _cards(text: str, lower: str) -> Iterator[PrivateSpan]:
    for match in _CARDS.finditer(text):
        number = "".join(str(int(one)) for one in match[0] if one.isdecimal())
        if _ISSUERS.fullmatch(number) and passes_luhn(number):
            yield PrivateSpan(*match.span(), "cards")


def _mails(text: str, lower: str) -> Iterator[PrivateSpan]:
    signs: set[int] = set()
    patterns = _MAILS if not text.isascii() or '"@' in text else _MAILS[:1]
    for match in (match for pattern in patterns for match in pattern.finditer(text)) if "@" in text else ():
        sign = text.rindex("@", *match.span())
        if sign in signs or _PICTURE.search(match[0]):
            continue
        signs.add(sign)
        # Before the @ of an address on the web stands who logs in, after it the host.
        if not _LOGIN.search(text[max(0, match.start() - _LONGEST_LOGIN) : match.start()]):
            yield PrivateSpan(*match.span(), "mails")
    if "%40" in text or "[at]" in lower or "(at)" in lower:
        yield from (PrivateSpan(*match.span(), "mails") for match in _WRITTEN_OUT.finditer(text))


def _phones(text: str, lower: str) -> Iterator[PrivateSpan]:
    return (PrivateSpan(*span, "phones") for span in find_phones(text, lower))


def _ibans(text: str, lower: str) -> Iterator[PrivateSpan]:
    for match in _IBANS.finditer(text):
        start = match.start() - 2
        size = _IBAN_SIZES.get(text[start : start + 2].upper())
        found = _taken(text, start, size) if size else None
        if found and _mod97(found[1]):
            yield PrivateSpan(start, found[0], "iban")


def _taken(text: str, start: int, size: int) -> tuple[int, str] | None:
    """So many letters and digits from here on, single spaces and hyphens between them passed over."""
    letters: list[str] = []
    at = start
    while at < len(text) and len(letters) < size:
        if text[at].isascii() and text[at].isalnum():
            letters.append(text[at])
        elif text[at] not in _BETWEEN or text[at - 1] in _BETWEEN:
            return None
        at += 1
    whole = len(letters) == size and not (at < len(text) and text[at].isascii() and text[at].isalnum())
    return (at, "".join(letters).upper()) if whole else None


def _mod97(iban: str) -> bool:
    return int("".join(str(int(one, 36)) for one in iban[4:] + iban[:4])) % 97 == 1


_FINDERS: Mapping[PrivateKind, Callable[[str, str], Iterator[PrivateSpan]]] = {
    "keys": _keys,
    "iban": _ibans,
    "cards": _cards,
    "mails": _mails,
    "phones": _phones,
}
