"""Find PINs, one-time codes and the three digits on the back of a card, by what they are called."""

from __future__ import annotations

import re
from collections.abc import Iterator

from engrain.core.named_secrets import Span, places

_STEMS = ("pin", "cvv", "cvc", "otp", "tan", "geheimzahl", "code", "código")
_NAME = re.compile(
    r"(?<![^\W_])(?:(?P<pin>pin)(?P<number>[- ]?(?:code|number|nummer))?|cvv2?|cvc2?|otp|tan|geheimzahl)(?![^\W_])"
    r"|(?:code|código) (?:de |d')?(?:vérification|verificación|verificação|sécurité|seguridad|segurança|secret|pin)"
    r"|code(?!\w)",
    re.IGNORECASE,
)
# "error code 404" is none.
_KIND_OF_CODE = re.compile(
    r"(?:verification|confirmation|authentication|security|one[- ]time|login|access|2fa|mfa|otp|sms|door|alarm|gate"
    r"|unlock|bestätigungs|sicherheits|einmal|zugangs)[- ]?$"
)
_LONGEST_KIND = 16
_DIGITS = r"(\d{3,8}|\d{3}[ -]\d{3})(?![\w-]|[.,]\d| \d)"
_IS = r"(?:is|ist|lautet|est|es|é)"
_SAID = re.compile(
    rf"(?:(?: [^\W\d]{{1,20}}){{0,5}}? {_IS}:? |'s |[\"']?[ \t]{{0,2}}[:=][ \t]{{0,2}}[\"']?){_DIGITS}", re.IGNORECASE
)
_BESIDE = re.compile(rf" {_DIGITS}")
_YOURS = re.compile(
    rf"\d(?<![\w.,]\d)(?:\d{{3,7}}|\d\d[ -]\d{{3}})(?= (?:as|{_IS}) (?:your|ihr|dein|votre|ton|su|tu|o seu|seu)\b"
    r"[^.\n\d]{0,40}c[oó]d)",
    re.IGNORECASE,
)


def codes(text: str, lower: str) -> Iterator[Span]:
    """Where they are, in no order; `lower` is the text in lower case, of the same length."""
    for at in places(lower, _STEMS):
        name = _NAME.match(text, at)
        if name is None:
            continue
        if name[0].lower() == "code" and not _KIND_OF_CODE.search(lower[max(0, at - _LONGEST_KIND) : at]):
            continue
        given = _SAID.match(text, name.end()) or _BESIDE.match(text, name.end())
        if given and _long_enough(name, given):
            yield given.span(1)
    if "cod" in lower or "cód" in lower:
        yield from (match.span() for match in _YOURS.finditer(text))


def _long_enough(name: re.Match[str], given: re.Match[str]) -> bool:
    """A PIN has four digits and more. Beside the bare name it is one in capitals ("pin 4711" may be of a plug), and
    "PIN code 110001" is a place in India."""
    digits = sum(one.isdigit() for one in given[1])
    if not name["pin"]:
        return bool(digits >= (3 if name[0][:2].lower() == "cv" else 4))
    if given.re is _BESIDE:
        return digits >= 4 and name["pin"] == "PIN" and not (name["number"] and digits == 6)
    return bool(digits >= 4)
