"""Replace keys, card numbers, mail addresses, phone numbers and IBANs in a text by marks."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any, Literal, NamedTuple, get_args

from engrain.core.errors import BackendMissing, InvalidInput
from engrain.core.secrets.credentials import Span, find_credentials, find_stems, is_secret_name

_SPACES = " \xa0\u2009\u202f"
_START = rf"(?<![\w+.,/-])(?<!\d[{_SPACES}-])"
_END = rf"(?![\w-]|[.,:]\d|[{_SPACES}]\d)"
_INTERNATIONAL = re.compile(
    rf"(?:\+(?<![A-Za-z0-9_+.]\+)|{_START}0(?:0|11) ?(?=[1-9]\d{{0,2}}[/{_SPACES}-]))"
    rf"[1-9](?:[.()/{_SPACES}-]{{0,3}}\d){{8,14}}(?![\d+])"
)
_NATIONAL = re.compile(
    rf"{_START}(?:(?:1[.-])?[2-9]\d\d([.-])\d{{3}}\1\d{{4}}"  # North America
    r"|[1-9]\d 9\d{4}-\d{4}|0[1-9](?:\.\d\d){4}"  # Brazil; France with dots
    # A code after a 0 or in brackets, groups, an extension.
    rf"|(?:0[1-9]\d{{0,4}}[/{_SPACES}-]|(?:1[ .-]?)?\(0? ?[1-9]\d{{0,3}}\)[{_SPACES}]?)"
    rf"\d{{2,8}}(?:([{_SPACES}-])\d{{2,5}}(?:\2\d{{2,5}}){{0,3}})?(?:-\d{{1,4}})?){_END}"
)
_REGIONS: tuple[str | None, ...] = ("US", "BR")
_REGIONS_WITH_0 = ("DE", "GB", "FR", "CH", "AU", "IN", "JP", "NL", "AT", "KR", "NZ")
_VERSION = re.compile(r"(?:version|release|build|firmware|ver\.|v)\s?$", re.IGNORECASE)
_LONGEST_VERSION = 9
_CALLS = (
    "tel", "tél", "phone", "mobil", "móvil", "celular", "cell", "handy", "fax", "whatsapp", "rufnummer", "numéro",
    "call ", "ring ", "text me", "reach me", "ruf ", "rufen ", "appelle", "appelez", "llám", "lig",
)  # fmt: skip
_CALLED = re.compile(
    r"(?<![^\W_])[^\W\d]{2,20}(?:(?:[ -](?:number|no|nr|nummer|me|us|her|him|mich|uns|an|moi|nous|at|on|under|unter|au"
    r"|al|el|le|pelo|no|is|ist|es|est|é|lautet)){0,4}[\"']?[ .:=]{0,3}[\"']?)"
    rf"(\+?\(?0?[1-9][\d()/.{_SPACES}-]{{6,18}}\d)(?!\d)",
    re.IGNORECASE,
)
_DATE = re.compile(r"\d{4}[-./]\d\d?[-./]\d\d?|\d\d?([-./ ])\d\d?\1\d{4}")
_NAME = re.compile(r"(?:phone|tele(?:f|ph)on\w?|mobile|cell|fax|whatsapp)(?:[_ -]?(?:number|no|nr))?$", re.IGNORECASE)


def require_phone_library() -> None:
    try:
        import phonenumbers  # noqa: F401
    except ImportError as exc:
        raise BackendMissing("the redaction of phone numbers", "redact") from exc


def find_phones(text: str, lower: str) -> Iterator[Span]:
    """Yield the spans of phone numbers, in no order. `lower` is the text in lower case, of the same length."""
    for match in chain(_INTERNATIONAL.finditer(text), _NATIONAL.finditer(text)):
        version = "." in match[0] and _VERSION.search(text, max(0, match.start() - _LONGEST_VERSION), match.start())
        if not version and _is_phone(match[0], international=match.re is _INTERNATIONAL):
            yield match.span()
    for at in find_stems(lower, _CALLS):
        called = _CALLED.match(text, at)
        if called and 7 <= sum(map(str.isdigit, called[1])) <= 15 and not _DATE.match(called[1]):
            yield called.span(1)


def is_phone_name(name: str) -> bool:
    """Tell if a field of this name holds a phone number: {"phone": …}."""
    return _NAME.search(name) is not None


def _is_phone(written: str, international: bool) -> bool:
    import phonenumbers

    accepts, regions = phonenumbers.is_valid_number, _REGIONS
    if international:
        # Not only valid ones: numbers reserved for films and tests are valid nowhere.
        accepts, regions = phonenumbers.is_possible_number, (None,)
        written = re.sub("^0(?:0|11)", "+", written)
    elif sum(map(str.isdigit, written)) < 9:
        return False
    elif written.lstrip("( ").startswith("0"):
        regions = _REGIONS_WITH_0
    for region in regions:
        with suppress(phonenumbers.NumberParseException):
            if accepts(phonenumbers.parse(written, region)):
                return True
    return False


_SECRET_NAMES = (
    r"pass ?words?|pass ?phrases?|pass ?codes?|pin(?: (?:code|number))?|cvv|cvc|api[- ]?keys?|secret(?: key)?"
    r"|private key"
    r"|(?:(?:access|auth\w*|bearer|refresh|api|session) )?tokens?|seed phrase|(?:recovery|backup) (?:phrase|code|key)s?"
    r"|social security(?: number)?|ssn|(?:credit |debit )?card number|(?:aws|ssh|encryption|licen[cs]e) key"
    r"|(?:2fa|mfa|otp|two-factor|one-time|verification|security|login|access|authentication|confirmation|alarm|door"
    r"|gate|entry|unlock|safe|garage|locker)[- ](?:code|combination)"
    r"|passwort|kennwort|mot de passe|numéro de sécu(?:rité sociale)?|contraseña|clave|código pin"
)
# "My password is …" states a secret; "never commit passwords" does not.
_STATED_SECRET = re.compile(
    rf"\b(?:{_SECRET_NAMES})\b(?: (?:for|to|of|on|at|in|für|zum|de|del|du|pour|para)(?: [\w'.-]+){{1,5}}?)?"
    r"(?:'s| is| are| was|=|:| ist| lautet| est| es)+(?! (?:not|never|too|in|on|stored|kept|wrong|expired|broken"
    r"|required|missing|case|only|the same|a secret|secret|weak|strong|safe|always|due|valid)\b)[:=]? *\S"
    r"|\b(?:the|my|your) code(?: is|:|'s) \d{4,8}\b",
    re.IGNORECASE,
)


def contains_secret(text: str) -> bool:
    """Tell if a text states a key, password, code or card number."""
    return _STATED_SECRET.search(text) is not None or bool(find_private(text, ("keys", "cards")))


def passes_luhn(number: str) -> bool:
    """Check the Luhn sum of a card number. One long number in ten passes by chance."""
    digits = [int(digit) for digit in number if digit.isdecimal()]
    doubled = [digit * 2 - 9 * (digit > 4) for digit in digits[-2::-2]]
    return (sum(digits[-1::-2]) + sum(doubled)) % 10 == 0


PrivateKind = Literal["keys", "cards", "mails", "phones", "iban"]
PRIVATE_KINDS: tuple[PrivateKind, ...] = get_args(PrivateKind)
# Where two spans overlap, the kind that comes first here wins.
MARKS: Mapping[PrivateKind, str] = {
    "keys": "«key»",
    "iban": "«iban»",
    "cards": "«card»",
    "mails": "«mail»",
    "phones": "«phone»",
}
_CARD_NUMBERS = (10**12, 10**19)  # a card has 13 to 19 digits
_MAX_PLAIN_NAME = 12  # characters: nothing private is that short, and most names of fields are
_MARK_TEXTS = frozenset(MARKS.values())
RedactFunction = Callable[[str], str]

# Every pattern starts after a character that is not its own and takes a bounded number of characters, so that any text
# is read in linear time. Where possible a pattern starts with a fixed character and looks back after it: the engine
# then jumps from one such character to the next. Scripts without spaces may touch a match.
_ASCII = "A-Za-z0-9_"
_UNSPACED = "\u2e80-\u9fff\uac00-\ud7af\uff00-\uffef"
_IBAN_GAPS = _SPACES + "-"
_CARD = re.compile(
    rf"\d(?<![{_ASCII}.-]\d)(?:\d{{12,18}}|\d{{3}}([-.{_SPACES}])"
    rf"(?:\d{{4}}\1\d{{4}}\1(?:\d{{4}}(?:\1\d{{1,3}})?|\d{{2}})|\d{{6}}\1\d{{4,5}}))(?![{_ASCII}-]|\.\d)"
)
_ISSUED_CARD = re.compile(
    r"4(?:\d{12}|\d{15}|\d{18})|5[1-5]\d{14}|2(?:22[1-9]|2[3-9]\d|[3-6]\d\d|7[01]\d|720)\d{12}|3[47]\d{13}"
    r"|6(?:011|5\d\d|4[4-9]\d)\d{12,15}|3(?:0[0-5]|[689]\d)\d{11,16}|35(?:2[89]|[3-8]\d)\d{12,15}|62\d{14,17}"
    r"|(?:50|5[6-8]|6\d)\d{11,17}"
)
_HOST = r"@(?:{letter}(?:{inner}{{0,61}}{letter})?\.){{1,8}}{top}{{2,24}}"
_MAIL_PATTERNS = (
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
# In the query of a URL, and as people hide it from robots: ana [at] example [dot] org.
_OBFUSCATED_MAIL = re.compile(
    r"(?<![\w.+-])[A-Za-z0-9_.+-]{1,64}(?:%40| ?[\[(]at[\])] ?)"
    r"(?:[A-Za-z0-9-]{1,63}(?:\.| ?[\[(]dot[\])] ?)){1,8}[A-Za-z]{2,24}(?!\w)",
    re.IGNORECASE,
)
_PICTURE_NAME = re.compile(r"@\dx\.[a-z]{3,4}$")  # icon@2x.png
_URL_LOGIN = re.compile(r"://[^\s/?#]*$")
_MAX_LOGIN_CHARACTERS = 330
_IBAN_START = re.compile(rf"\d(?<=[A-Za-z]{{2}}\d)(?<![A-Za-z0-9][A-Za-z]{{2}}\d)\d(?=[{_SPACES}-]?[A-Za-z0-9])")
_IBAN_SIZES: Mapping[str, int] = {
    code: int(size)
    for part in (
        "AD24 AE23 AL28 AT20 AZ28 BA20 BE16 BG22 BH22 BR29 BY28 CH21 CR22 CY28 CZ24 DE22 DK18 DO28 EE20 EG29 ES24",
        "FI18 FO18 FR27 GB22 GE22 GI23 GL18 GR27 GT28 HR21 HU28 IE22 IL23 IQ23 IS26 IT27 JO30 KW30 KZ20 LB28 LC32",
        "LI21 LT20 LU20 LV21 LY25 MC27 MD24 ME22 MK19 MR27 MT31 MU30 NL18 NO15 PK24 PL28 PS29 PT25 QA29 RO24 RS22",
        "SA24 SC31 SE24 SI19 SK24 SM27 ST25 SV28 TL23 TN24 TR26 UA29 VA22 VG24 XK20",
    )
    for code, size in ((entry[:2], entry[2:]) for entry in part.split())
}


class PrivateSpan(NamedTuple):
    start: int
    end: int
    kind: PrivateKind


def make_redactor(wanted: object) -> RedactFunction | None:
    """Make a redactor from names of kinds, a function, or a list of both; None for nothing."""
    parts = [wanted] if isinstance(wanted, str) or callable(wanted) else wanted
    if parts is None:
        return None
    if not isinstance(parts, (list, tuple)):
        raise InvalidInput(f"redact takes a list of {', '.join(PRIVATE_KINDS)}, or a function, not {wanted!r:.80}.")
    own = [part for part in parts if callable(part)]
    names = [part for part in parts if not callable(part)]
    for name in names:
        if name not in PRIVATE_KINDS:
            raise InvalidInput(f"redact does not know {name!r:.80}. Known: {', '.join(PRIVATE_KINDS)}; or a function.")
    if not parts:
        return None
    if "phones" in names:
        require_phone_library()
    kinds = tuple(names)

    def redact(text: str) -> str:
        text = redact_text(text, kinds)
        for function in own:
            text = function(text)
            if not isinstance(text, str):
                raise InvalidInput(f"the redact function returned a {type(text).__name__}; it must return a str.")
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
    """Redact every text in a JSON value, names and long numbers too. Names that become equal are numbered."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, Mapping):
        redacted: dict[Any, Any] = {}
        repeats: Counter[Any] = Counter()
        for name, field in value.items():
            plain = not isinstance(name, str) or (len(name) <= _MAX_PLAIN_NAME and name.isidentifier())
            key = name if plain else redact(name)
            while key in redacted:
                repeats[key] += 1
                key = f"{key} {repeats[key] + 1}"
            redacted[key] = _redact_field(name, field, redact)
        return redacted
    if isinstance(value, int) and _CARD_NUMBERS[0] <= value < _CARD_NUMBERS[1]:
        text = str(value)
        return value if (changed := redact(text)) == text else changed
    return [redact_json(element, redact) for element in value] if isinstance(value, (list, tuple)) else value


def _redact_field(name: Any, value: Any, redact: RedactFunction) -> Any:
    """Redact a value with its name: {"password": "hunter2"} and {"pin": 4711} are secrets by their names alone."""
    value = redact_json(value, redact)
    is_plain = isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool))
    if not is_plain or not isinstance(name, str) or not (is_secret_name(name) or is_phone_name(name)):
        return value
    before, after = f'{name}: "', '"'
    text = str(value)
    whole = redact(before + text + after)
    intact = whole.startswith(before) and whole.endswith(after)
    content = whole[len(before) : -1] if intact else text
    return value if content == text else content


def find_private(text: str, kinds: Sequence[PrivateKind] = PRIVATE_KINDS) -> list[PrivateSpan]:
    """Return the private spans in order. Overlapping spans become one. A mark of an earlier redaction is no span."""
    order = [kind for kind in MARKS if kind in kinds]
    # Only this letter becomes two in lower case, which would shift the offsets.
    lower = text.replace("İ", "I").lower()
    found = (PrivateSpan(*span, kind) for kind in order for span in _FINDERS[kind](text, lower))
    unmarked = (span for span in found if text[span.start : span.end] not in _MARK_TEXTS)
    merged: list[PrivateSpan] = []
    for span in sorted(unmarked, key=lambda span: span[:2]):
        last = merged[-1] if merged else None
        if last and span.start < last.end:
            kind = min(last.kind, span.kind, key=order.index)
            merged[-1] = PrivateSpan(last.start, max(last.end, span.end), kind)
        else:
            merged.append(span)
    return merged


def _find_cards(text: str, lower: str) -> Iterator[Span]:
    for match in _CARD.finditer(text):
        number = "".join(str(int(digit)) for digit in match[0] if digit.isdecimal())
        if _ISSUED_CARD.fullmatch(number) and passes_luhn(number):
            yield match.span()


def _find_mails(text: str, lower: str) -> Iterator[Span]:
    signs: set[int] = set()
    patterns = _MAIL_PATTERNS if not text.isascii() or '"@' in text else _MAIL_PATTERNS[:1]
    for match in (match for pattern in patterns for match in pattern.finditer(text)) if "@" in text else ():
        sign = text.rindex("@", *match.span())
        if sign in signs or _PICTURE_NAME.search(match[0]):
            continue
        signs.add(sign)
        # In a URL the @ separates the login from the host.
        if not _URL_LOGIN.search(text[max(0, match.start() - _MAX_LOGIN_CHARACTERS) : match.start()]):
            yield match.span()
    if "%40" in text or "[at]" in lower or "(at)" in lower:
        yield from (match.span() for match in _OBFUSCATED_MAIL.finditer(text))


def _find_ibans(text: str, lower: str) -> Iterator[Span]:
    for match in _IBAN_START.finditer(text):
        start = match.start() - 2
        size = _IBAN_SIZES.get(text[start : start + 2].upper())
        found = _read_iban(text, start, size) if size else None
        if found and int("".join(str(int(letter, 36)) for letter in found[1][4:] + found[1][:4])) % 97 == 1:
            yield start, found[0]


def _read_iban(text: str, start: int, size: int) -> tuple[int, str] | None:
    """Read so many letters and digits, over single spaces and hyphens. Return the end and the IBAN."""
    letters: list[str] = []
    at = start
    while at < len(text) and len(letters) < size:
        if text[at].isascii() and text[at].isalnum():
            letters.append(text[at])
        elif text[at] not in _IBAN_GAPS or text[at - 1] in _IBAN_GAPS:
            return None
        at += 1
    whole = len(letters) == size and not (at < len(text) and text[at].isascii() and text[at].isalnum())
    return (at, "".join(letters).upper()) if whole else None


_FINDERS: Mapping[PrivateKind, Callable[[str, str], Iterator[Span]]] = {
    "keys": find_credentials,
    "iban": _find_ibans,
    "cards": _find_cards,
    "mails": _find_mails,
    "phones": find_phones,
}
