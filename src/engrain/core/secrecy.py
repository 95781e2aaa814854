"""Tell whether a text gives away a secret: a password, a key, a card number, a code."""

from __future__ import annotations

import re

from engrain.core.credentials import service_keys

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


def gives_away_a_secret(text: str) -> bool:
    return (
        next(service_keys(text), None) is not None
        or _SHAPES.search(text) is not None
        or _GIVEN.search(text) is not None
        or any(luhn(match[0]) for match in _DIGITS.finditer(text))
    )


def luhn(number: str) -> bool:
    """The checksum of card numbers: one long number in ten has it by chance."""
    digits = [int(digit) for digit in number if digit.isdecimal()]
    doubled = [digit * 2 - 9 * (digit > 4) for digit in digits[-2::-2]]
    return (sum(digits[-1::-2]) + sum(doubled)) % 10 == 0
