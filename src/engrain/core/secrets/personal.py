"""Find phone numbers and card numbers, and tell texts that state a secret."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain

from engrain.core.errors import BackendMissing
from engrain.core.secrets.credentials import Span, find_service_keys, find_stems

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


_SECRET_FORM = re.compile(
    r"-----BEGIN [A-Z ]*(?:KEY|CERTIFICATE)|\b[a-f0-9]{32,}\b|\b[a-z]{2,20}://[^\s:/@]{1,64}:[^\s@/]{1,64}@"
)
_SECRET_NAMES = (
    r"pass ?words?|pass ?phrases?|pass ?codes?|pin(?: (?:code|number))?|cvv|cvc|api[- ]?keys?|secret(?: key)?"
    r"|private key"
    r"|(?:(?:access|auth\w*|bearer|refresh|api|session) )?tokens?|seed phrase|(?:recovery|backup) (?:phrase|code|key)s?"
    r"|social security(?: number)?|ssn|(?:credit |debit )?card number|(?:aws|ssh|encryption|licen[cs]e) key"
    r"|(?:2fa|mfa|otp|two-factor|one-time|verification|security|login|access|authentication|confirmation|alarm|door"
    r"|gate|entry|unlock|safe|garage|locker)[- ](?:code|combination)"
    r"|passwort|kennwort|mot de passe|contraseña|clave|código pin"
)
# "My password is …" states a secret; "never commit passwords" does not.
_STATED_SECRET = re.compile(
    rf"\b(?:{_SECRET_NAMES})\b(?: (?:for|to|of|on|at|in|für|zum|de|del|du|pour|para)(?: [\w'.-]+){{1,5}}?)?"
    r"(?:'s| is| are| was|=|:| ist| lautet| est| es)+(?! (?:not|never|too|in|on|stored|kept|wrong|expired|broken"
    r"|required|missing|case|only|the same|a secret|secret|weak|strong|safe|always|due|valid)\b)[:=]? *\S"
    r"|\b(?:the|my|your) code(?: is|:|'s) \d{4,8}\b",
    re.IGNORECASE,
)
_LONG_NUMBER = re.compile(r"(?<![\d.])\d(?:[ -]?\d){12,18}(?![\d.])")


def contains_secret(text: str) -> bool:
    """Tell if a text states a key, password, code or card number."""
    return (
        next(find_service_keys(text), None) is not None
        or _SECRET_FORM.search(text) is not None
        or _STATED_SECRET.search(text) is not None
        or any(passes_luhn(match[0]) for match in _LONG_NUMBER.finditer(text))
    )


def passes_luhn(number: str) -> bool:
    """Check the Luhn sum of a card number. One long number in ten passes by chance."""
    digits = [int(digit) for digit in number if digit.isdecimal()]
    doubled = [digit * 2 - 9 * (digit > 4) for digit in digits[-2::-2]]
    return (sum(digits[-1::-2]) + sum(doubled)) % 10 == 0
