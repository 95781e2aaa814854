"""Find phone numbers: by their form, or by the words before them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from engrain.core.secrets.credentials import find_service_keys
from engrain.core.secrets.named import Span, find_stems

_ASCII = "A-Za-z0-9_"
_SPACES = " \xa0\u2009\u202f"
_GAP = rf"[.()/{_SPACES}-]{{0,3}}"
_ALONE = rf"(?<![\w.,+-]\d)(?<!\d[{_SPACES}]\d)"  # after the first digit: none of a longer number
_OVER = rf"(?![\w-]|[.,:]\d|[{_SPACES}]\d)"
_WITH_COUNTRY = (
    re.compile(rf"\+(?<![{_ASCII}+.]\+)[1-9]\d{{0,2}}(?:{_GAP}\d){{7,13}}(?![\d+])"),
    re.compile(
        rf"0(?:0|11)(?<![{_ASCII}+.,-]00)(?<![{_ASCII}+.,-]011)(?<!\d[ -]00)(?<!\d[ -]011)[ ]?[1-9]\d{{0,2}}"
        rf"[/{_SPACES}-](?:{_GAP}\d){{7,12}}(?!\d)"
    ),
)
_WITHIN_COUNTRY = (
    # North America.
    re.compile(r"\((?<!\w\()[2-9]\d\d\) ?[2-9]\d\d[ .-]\d{4}(?![\w-])"),
    re.compile(r"(?:1(?<![\w.+/-]1)[-.][2-9]|[2-9](?<![\w.+/-]\d))\d\d([-.])[2-9]\d\d\1\d{4}(?![\w-]|\.\d)"),
    # Five pairs, as in France.
    re.compile(rf"0{_ALONE}[1-9]([{_SPACES}.-])\d\d(?:\1\d\d){{3}}{_OVER}"),
    # A code with a 0 before it, then one group or several.
    re.compile(rf"0{_ALONE}[1-9]\d{{1,3}}[{_SPACES}/-]\d{{5,8}}(?:-\d{{1,4}})?{_OVER}"),
    re.compile(
        rf"0{_ALONE}(?=(?:\D?\d){{8,10}}(?!\D?\d))[1-9]\d{{0,3}}[{_SPACES}/-]\d{{3,5}}(?:[{_SPACES}-]\d{{2,5}}){{1,2}}{_OVER}"
    ),
    re.compile(rf"\((?<!\w\()0 ?\d{{1,4}}\)[{_SPACES}]?\d(?:[{_SPACES}/-]?\d){{4,8}}{_OVER}"),
    # Brazil.
    re.compile(rf"(?:\((?<!\w\()[1-9]\d\) ?9?\d{{4}}[ -]|[1-9]{_ALONE}\d 9\d{{4}}-)\d{{4}}{_OVER}"),
)
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


def find_phones(text: str, lower: str) -> Iterator[Span]:
    """Where they are, in no order; `lower` is the text in lower case, of the same length."""
    for match in (match for pattern in _WITH_COUNTRY for match in pattern.finditer(text)):
        called = re.sub(r"^(?:00|011)", "", re.sub(r"\D", "", match[0]))
        # In North America a number has ten digits after the 1, and neither group begins with 0 or 1.
        plausible = re.fullmatch(r"1[2-9]\d\d[2-9]\d{6}", called) if called[0] == "1" else 9 <= len(called) <= 15
        if plausible:
            yield match.span()
    for match in (match for pattern in _WITHIN_COUNTRY for match in pattern.finditer(text)):
        start = match.start()
        if "." not in match[0] or not _VERSION.search(text[max(0, start - _LONGEST_VERSION) : start]):
            yield match.span()
    for at in find_stems(lower, _CALLS):
        called_by = _CALLED.match(text, at)
        if called_by and 7 <= sum(one.isdigit() for one in called_by[1]) <= 15 and not _DATE.match(called_by[1]):
            yield called_by.span(1)


def is_phone_name(name: str) -> bool:
    """Whether what has this name is a phone number: {"phone": …}."""
    return _NAME.search(name) is not None


_SHAPES = re.compile(
    r"-----BEGIN [A-Z ]*(?:KEY|CERTIFICATE)|\b[a-f0-9]{32,}\b|\b[a-z]{2,20}://[^\s:/@]{1,64}:[^\s@/]{1,64}@"
)
_NAMES = (
    r"pass ?words?|pass ?phrases?|pass ?codes?|pin(?: (?:code|number))?|cvv|cvc|api[- ]?keys?|secret(?: key)?"
    r"|private key"
    r"|(?:(?:access|auth\w*|bearer|refresh|api|session) )?tokens?|seed phrase|(?:recovery|backup) (?:phrase|code|key)s?"
    r"|social security(?: number)?|ssn|(?:credit |debit )?card number|(?:aws|ssh|encryption|licen[cs]e) key"
    r"|(?:2fa|mfa|otp|two-factor|one-time|verification|security|login|access|authentication|confirmation|alarm|door"
    r"|gate|entry|unlock|safe|garage|locker)[- ](?:code|combination)"
    r"|passwort|kennwort|mot de passe|contraseña|clave|código pin"
)
# "My password is …" gives it away; "never commit passwords" does not.
_GIVEN = re.compile(
    rf"\b(?:{_NAMES})\b(?: (?:for|to|of|on|at|in|für|zum|de|del|du|pour|para)(?: [\w'.-]+){{1,5}}?)?"
    r"(?:'s| is| are| was|=|:| ist| lautet| est| es)+(?! (?:not|never|too|in|on|stored|kept|wrong|expired|broken"
    r"|required|missing|case|only|the same|a secret|secret|weak|strong|safe|always|due|valid)\b)[:=]? *\S"
    r"|\b(?:the|my|your) code(?: is|:|'s) \d{4,8}\b",
    re.IGNORECASE,
)
_DIGITS = re.compile(r"(?<![\d.])\d(?:[ -]?\d){12,18}(?![\d.])")


def contains_secret(text: str) -> bool:
    return (
        next(find_service_keys(text), None) is not None
        or _SHAPES.search(text) is not None
        or _GIVEN.search(text) is not None
        or any(passes_luhn(match[0]) for match in _DIGITS.finditer(text))
    )


def passes_luhn(number: str) -> bool:
    """The checksum of card numbers: one long number in ten has it by chance."""
    digits = [int(digit) for digit in number if digit.isdecimal()]
    doubled = [digit * 2 - 9 * (digit > 4) for digit in digits[-2::-2]]
    return (sum(digits[-1::-2]) + sum(doubled)) % 10 == 0
