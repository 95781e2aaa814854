"""Find keys, card numbers, mail addresses, phone numbers and IBANs in a text, and put marks in their place."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, get_args

from engrain.core.errors import InvalidInput
from engrain.core.secrecy import KEYS, luhn

Private = Literal["keys", "cards", "mails", "phones", "iban"]
PRIVATE: tuple[Private, ...] = get_args(Private)
# Where two overlap, the mark of the one that comes first here stands for both.
MARKS: Mapping[Private, str] = {
    "keys": "«key»",
    "iban": "«iban»",
    "cards": "«card»",
    "mails": "«mail»",
    "phones": "«phone»",
}
_PLACED = frozenset(MARKS.values())
Redact = Callable[[str], str]

# Every pattern begins where the character before is not one of its own and takes a bounded number of characters, so
# that a text of any kind is read in linear time. Those that can begin with a character and look back after it: the
# engine then leaps from one such character to the next.
_PREFIXES = (
    "sk-", "sk_", "pk-", "pk_", "rk-", "rk_", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "AKIA",
    "ASIA", "AIza", "xox", "npm_", "pypi-", "hf_", "SG.", "_v1_", "shp", "ya29.", "eyJ",
)  # fmt: skip
# Groups: what is given away. The password in an address, a bearer token, the value of something that is named so.
_GIVEN = re.compile(
    r"""
      (?<![a-z])[a-z][a-z0-9+.-]{1,19}://[^\s:/@]{0,64}:([^\s/?\#]{1,256})@
    | (?<![A-Za-z])[Bb]earer\ ([A-Za-z0-9._~+/=-]{20,4096})
    """,
    re.VERBOSE,
)
_NAMES = ("key", "secret", "token", "passw", "pwd")
_NAMED = re.compile(
    r"[=:](?<=[a-z\"' ].)[ ]{0,3}[\"']?([A-Za-z0-9+/=_.~!@#$%^&*-]{8,256})",
    re.IGNORECASE,
)
_NAME = re.compile(
    r"(?<![A-Za-z0-9])(?:api[_ -]?key|secret(?:[_ -](?:access[_ -])?key)?|access[_ -]key|(?:auth|access|api)[_ -]?token"
    r"|token|passwor[dt]|passwd|pwd)[\"']?[ ]{0,3}$",
    re.IGNORECASE,
)
_LONGEST_NAME = 28
_WORD = re.compile(r"[^\s\"'`,;()<>]{32,}")
_RANDOM = re.compile(r"(?<![A-Za-z0-9+/_=.-])[A-Za-z0-9+/_=-]{32,128}(?![A-Za-z0-9+/_=-])")
_BEGINS = re.compile(r"-----BEGIN (?:[A-Z0-9]{1,20} ){0,4}PRIVATE KEY(?: BLOCK)?-----")
_ENDS = re.compile(r"-----END (?:[A-Z0-9]{1,20} ){0,4}PRIVATE KEY(?: BLOCK)?-----")
_CARDS = re.compile(
    r"\d(?<![\w.-]\d)(?:\d{12,18}|\d{3}([ -])(?:\d{4}\1\d{4}\1\d{4}(?:\1\d{1,3})?|\d{6}\1\d{4,5}))(?![\w-]|\.\d)"
)
_ISSUERS = re.compile(
    r"4(?:\d{12}|\d{15}|\d{18})|5[1-5]\d{14}|2(?:22[1-9]|2[3-9]\d|[3-6]\d\d|7[01]\d|720)\d{12}|3[47]\d{13}"
    r"|6(?:011|5\d\d|4[4-9]\d)\d{12,15}|3(?:0[0-5]|[689]\d)\d{11,16}|35(?:2[89]|[3-8]\d)\d{12,15}|62\d{14,17}"
    r"|(?:50|5[6-8]|6\d)\d{11,17}"
)
_MAILS = re.compile(
    r"(?<![\w.%+-])[\w%+-](?:[\w.%+-]{0,62}[\w%+-])?@(?:[^\W_](?:[\w-]{0,61}[^\W_])?\.){1,8}[^\W\d_]{2,24}(?![\w@])"
)
_LOGIN = re.compile(r"://[^\s/?#]*$")
_LONGEST_LOGIN = 330
_GAP = r"[ .()/-]{0,3}"
_PHONES = (
    re.compile(rf"\+(?<![\w+.]\+)[1-9]\d{{0,2}}(?:{_GAP}\d){{7,13}}(?![\d+])"),
    re.compile(rf"00(?<![\w+.,-]00)[1-9]\d{{0,2}}[ /-](?:{_GAP}\d){{7,12}}(?!\d)"),
    re.compile(r"\((?<!\w\()[2-9]\d\d\) ?[2-9]\d\d[ .-]\d{4}(?![\w-])"),
    re.compile(r"[2-9](?<![\w.+-]\d)\d\d-[2-9]\d\d-\d{4}(?![\w-]|\.\d)"),
)
_CALLS = ("tel", "tél", "phone", "mobile", "cell", "handy", "fax", "whatsapp")
_CALLED = re.compile(
    r"(?<![a-z])(?:tel|telefon|telephone|phone|mobile|cell|handy|fax|whatsapp|teléfono|téléphone)"
    r"(?: (?:number|no|nr|nummer))?(?: (?:is|ist|es|est))?[.:]{0,2} {0,2}(\(?0?[1-9][\d ()/.-]{6,18}\d)(?!\d)",
    re.IGNORECASE,
)
_IBANS = re.compile(r"\d(?<=[A-Za-z]{2}\d)(?<![A-Za-z0-9][A-Za-z]{2}\d)\d(?=[ -]?[A-Za-z0-9])")
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


class Found(NamedTuple):
    start: int
    end: int
    kind: Private


def redactor(wanted: object) -> Redact | None:
    """From the names of what is private, a function of one's own, or a list of both; None for nothing."""
    parts = [wanted] if isinstance(wanted, str) or callable(wanted) else wanted
    if parts is None:
        return None
    if not isinstance(parts, (list, tuple)):
        raise InvalidInput(f"redact takes a list of {', '.join(PRIVATE)}, or a function, not {wanted!r:.80}.")
    own = [one for one in parts if callable(one)]
    names = [one for one in parts if not callable(one)]
    for name in names:
        if name not in PRIVATE:
            raise InvalidInput(f"redact does not know {name!r:.80}. Known: {', '.join(PRIVATE)}; or a function.")
    if not parts:
        return None
    kinds = tuple(names)

    def redact(text: str) -> str:
        text = redacted(text, kinds)
        for function in own:
            text = function(text)
            if not isinstance(text, str):
                raise InvalidInput(f"the redact function gave a {type(text).__name__}; it must give a text.")
        return text

    return redact


def redacted(text: str, kinds: Sequence[Private] = PRIVATE) -> str:
    parts: list[str] = []
    at = 0
    for found in finds(text, kinds):
        parts += text[at : found.start], MARKS[found.kind]
        at = found.end
    return "".join((*parts, text[at:])) if parts else text


def redacted_json(value: Any, redact: Redact) -> Any:
    """The same with every text in it redacted, keys as they are."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, Mapping):
        return {key: redacted_json(one, redact) for key, one in value.items()}
    return [redacted_json(one, redact) for one in value] if isinstance(value, (list, tuple)) else value


def finds(text: str, kinds: Sequence[Private] = PRIVATE) -> list[Found]:
    """In order; those that overlap are one. A mark that stands in the place of one is none."""
    order = [kind for kind in MARKS if kind in kinds]
    every = (found for kind in order for found in _FINDERS[kind](text))
    joined: list[Found] = []
    for one in sorted((one for one in every if text[one.start : one.end] not in _PLACED), key=lambda one: one[:2]):
        last = joined[-1] if joined else None
        if last and one.start < last.end:
            kind = min(last.kind, one.kind, key=order.index)
            joined[-1] = Found(last.start, max(last.end, one.end), kind)
        else:
            joined.append(one)
    return joined


def _keys(text: str) -> Iterator[Found]:
    if any(one in text for one in _PREFIXES):
        yield from (Found(*match.span(), "keys") for match in KEYS.finditer(text))
    if "://" in text or "earer " in text:
        for match in _GIVEN.finditer(text):
            yield Found(*match.span(match.lastindex or 0), "keys")
    lower = text.lower()
    if any(one in lower for one in _NAMES):
        for match in _NAMED.finditer(text):
            if _mixed(match[1]) and _NAME.search(text[max(0, match.start() - _LONGEST_NAME) : match.start()]):
                yield Found(*match.span(1), "keys")
    for word in _WORD.finditer(text):
        for match in _RANDOM.finditer(text, *word.span()):
            if _random(match[0]):
                yield Found(*match.span(), "keys")
    yield from _private_keys(text)


def _private_keys(text: str) -> Iterator[Found]:
    """Each to its end, or to that of the text: without an end, what follows is still the key."""
    at = 0
    while begins := _BEGINS.search(text, at):
        ends = _ENDS.search(text, begins.end())
        at = ends.end() if ends else len(text)
        yield Found(begins.start(), at, "keys")


def _mixed(value: str) -> bool:
    return any(one.isdigit() for one in value) and any(one.isalpha() for one in value)


def _random(value: str) -> bool:
    """Upper case, lower case and digits, each several, and no pattern in them."""
    several = all(sum(map(test, value)) >= 3 for test in (str.isupper, str.islower, str.isdigit))
    return several and _entropy(value) >= 4.2


def _entropy(value: str) -> float:
    """Bits a character."""
    shares = [count / len(value) for count in Counter(value).values()]
    return -sum(share * math.log2(share) for share in shares)


def _cards(text: str) -> Iterator[Found]:
    for match in _CARDS.finditer(text):
        number = re.sub(r"[ -]", "", match[0])
        if number.isascii() and _ISSUERS.fullmatch(number) and luhn(number):
            yield Found(*match.span(), "cards")


def _mails(text: str) -> Iterator[Found]:
    for match in _MAILS.finditer(text) if "@" in text else ():
        # Before the @ of an address on the web stands who logs in, after it the host.
        if not _LOGIN.search(text[max(0, match.start() - _LONGEST_LOGIN) : match.start()]):
            yield Found(*match.span(), "mails")


def _phones(text: str) -> Iterator[Found]:
    for match in (match for pattern in _PHONES for match in pattern.finditer(text)):
        digits = re.sub(r"\D", "", match[0])
        called = digits.removeprefix("00") if match[0].startswith("00") else digits
        # In North America a number has ten digits after the 1, and neither group begins with 0 or 1.
        plausible = re.fullmatch(r"1[2-9]\d\d[2-9]\d{6}", called) if called[0] == "1" else 9 <= len(called) <= 15
        if plausible or not match[0].startswith(("+", "00")):
            yield Found(*match.span(), "phones")
    lower = text.lower()
    for match in _CALLED.finditer(text) if any(one in lower for one in _CALLS) else ():
        if 7 <= sum(one.isdigit() for one in match[1]) <= 15:
            yield Found(*match.span(1), "phones")


def _ibans(text: str) -> Iterator[Found]:
    for match in _IBANS.finditer(text):
        start = match.start() - 2
        size = _IBAN_SIZES.get(text[start : start + 2].upper())
        found = _taken(text, start, size) if size else None
        if found and _mod97(found[1]):
            yield Found(start, found[0], "iban")


def _taken(text: str, start: int, size: int) -> tuple[int, str] | None:
    """So many letters and digits from here on, single spaces and hyphens between them passed over."""
    letters: list[str] = []
    at = start
    while at < len(text) and len(letters) < size:
        if text[at].isascii() and text[at].isalnum():
            letters.append(text[at])
        elif text[at] not in " -" or text[at - 1] in " -":
            return None
        at += 1
    whole = len(letters) == size and not (at < len(text) and text[at].isalnum())
    return (at, "".join(letters).upper()) if whole else None


def _mod97(iban: str) -> bool:
    return int("".join(str(int(one, 36)) for one in iban[4:] + iban[:4])) % 97 == 1


_FINDERS: Mapping[Private, Callable[[str], Iterator[Found]]] = {
    "keys": _keys,
    "iban": _ibans,
    "cards": _cards,
    "mails": _mails,
    "phones": _phones,
}
