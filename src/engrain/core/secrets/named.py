"""Find what a text itself calls a password, a key or a token: `password = …`, "my password is …"."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

_ENGLISH_AND_CODE = """
above accepts again almost already also always another any argument automatic basic bearer below blank bool boolean
both bytes case changed char charfield clear coming common complex complicated compulsory confidential correct data
default different disabled easy either empty enabled enter environ expired expiring explicit false field file fine
flag forgotten from gone good hard hash hashed here hidden hint identical important incorrect input insecure int
integer invalid just known leaked less long lost mandatory masked missing more most must name necessary needed never
next none null number object obsolete okay only open option optional parameter pass passcode passphrase passwd
password passwords passwort pending plain plaintext please present private prompt protected public random read ready
redacted required requires reset right safe same secret secrets secretstr secure sensitive shared short shown
similar simple some stale stdin still stolen stored strength string strong sufficient switch temporary text that
their there this token true type typing undefined unique unknown unsafe unset unused used user username valid value
varchar vault verified very void weak what when where which whatever with without word working write written wrong
your yours
"""
_GERMAN = """
abgelaufen anders auch bekannt bitte dasselbe einfach falsch fehlt geheim gesperrt gleich hier immer kein keine kurz
lang leer neu nicht noch nötig richtig schwach sehr sicher siehe unbekannt unsicher unten vergessen
"""
_FRENCH = """
aucun bonne correcte dans différent faible fausse faux inconnu incorrecte invalide juste même nouveau oublié perdu
sécurisé toujours trop vide voir
"""
_SPANISH_AND_PORTUGUESE = """
claro correcta débil demasiado diferente errada errado forte fraca incorreta incorrecta inválida misma mesma muito
nueva nova nunca perdida secreta segura siempre sempre vacía vazia
"""

DESCRIPTION_WORDS = frozenset(" ".join((_ENGLISH_AND_CODE, _GERMAN, _FRENCH, _SPANISH_AND_PORTUGUESE)).split())


Span = tuple[int, int]

# What a name begins with is looked for as it stands, which costs next to nothing; the pattern is tried only there.
_STEMS = (
    "pass", "kennwort", "contraseña", "senha", "wachtwoord", "пароль", "密", "パスワード", "비밀번호",
    "pw", "secret", "token", "pat", "api", "access", "account", "auth", "client", "encryption", "licen", "master",
    "private", "shared", "signing", "subscription",
)  # fmt: skip
_NAME = (
    r"(?:(?P<password>passwor[dt]s?|passwd|pwd|(?<![a-z])pw(?![a-z])|pass[_ -]?code|(?<=mot de )passe|(?<=[_-])pass"
    r"|kennwort|contraseña|senha"
    r"|wachtwoord|пароль|密码|密碼|パスワード|비밀번호|(?P<phrase>pass[_ -]?phrase))"
    r"|(?:api|access|account|auth|client|encryption|licen[cs]e|master|private|shared|signing|subscription)[_ -]?key"
    r"|secret(?:[_ -]?(?:access[_ -]?)?key)?|token|(?<![a-z])pat)"
)
_OF = r"(?: (?:for|of|to|on|at|für|zum|zur|vom|von|de|del|du|da|do|pour|para)(?: [\w'.-]{1,30}){1,4}?)?"
_NAMED = re.compile(
    _NAME + r"(?:(?:\\?[\"'`])?[ \t\xa0]{0,3}(?:=>|[:=：]=?|-(?<= -)(?= ))[ \t\xa0]{0,3}|[\"']?>"
    rf"|(?P<said>{_OF} (?:is|was|ist|war|lautet|est|es|é):? |'s |是|は)"
    # Nothing but its place says that it is one: a cell of a table, brackets, "password Sommer2024".
    r"|(?P<beside>[ \t]{1,3}(?:\|[ \t]{1,3}|\()"
    r"|(?: (?:has been|was))?(?: (?:re)?set| changed)?(?: from \S{1,64})? (?:to |auf |à |a )?))"
    r"(?:\\?\"(?P<double>[^\"\\\n]{4,256})\\?\"|'(?P<single>[^'\n]{4,256})'"
    # Of a query in a URL the next name ends it; before a bracket stands a call, which gives nothing away.
    r"|(?P<bare>(?:(?!&\w{1,40}=)[^\s\"'`,;<>(){}\[\]|«»]){4,256}+)(?![(\[{]))",
    re.IGNORECASE,
)
_NAME_ALONE = re.compile(rf"(?:{_NAME}|(?<![a-z])(?:pin|cvv|cvc|otp))$", re.IGNORECASE)
_SIGNS = re.compile(r"\w[@#$%^&!]+\w")
_STANDS_FOR = re.compile(
    r"[$%{<*\[«]|[/~.]|x{4}|[\d-]+(?:char|digit|letter|bit|byte)|your[_-]|(?:self|os|env)\.", re.IGNORECASE
)
_HALF_SPOKEN = re.compile(r"(?:case|read|write|non|not|auto|self|user|one|two)-", re.IGNORECASE)
_LONG = 40
_LETTERS = re.compile(r"[^\W\d_]{4,}(?:-[^\W\d_]+)*")
# A word that is the last of its clause: "the password is swordfish." and not "the password is stored as a hash".
_CLAUSE_ENDS = re.compile(r"[.!]?[ \t]*(?:$|\n)|[.!]\s|[,;)\]}&<|#]|[ \t]+(?:[/#|&;-]|[\w.-]{1,40}=)")
_PARTICIPLE = re.compile(
    r"\w{3,}(?:ed|able|ible|ée?s?|[ai]d[oa]s?)|(?:ge|ver|ab|be|ent|zurück)\w{3,}(?:t|en)", re.IGNORECASE
)
_SCHEMES = re.compile(r"(?:sha|md|base|oauth|argon|pbkdf|bcrypt|scrypt|aes|utf|1password)[\w-]*", re.IGNORECASE)
_UUID = re.compile(r"[\da-f]{8}(?:-[\da-f]{4}){3}-[\da-f]{12}", re.IGNORECASE)


def find_named_secrets(text: str, lower: str) -> Iterator[Span]:
    """Where they are, in no order; `lower` is the text in lower case, of the same length. The name stays."""
    for stem in _STEMS:
        at = lower.find(stem)
        while at >= 0:
            match = _NAMED.match(text, at)
            at = lower.find(stem, at + len(stem))
            if match is None:
                continue
            span = _value(match)
            if _given(match, text, span):
                yield span
            # What is long is not looked through once more, so that a text of nothing but names is read in linear time.
            if 0 <= at < span[1] and span[1] - span[0] > _LONG:
                at = lower.find(stem, span[1])


def find_stems(lower: str, stems: Sequence[str]) -> Iterator[int]:
    for stem in stems:
        at = lower.find(stem)
        while at >= 0:
            yield at
            at = lower.find(stem, at + len(stem))


def is_secret_name(name: str) -> bool:
    """Whether what has this name is a secret: {"password": …}."""
    return _NAME_ALONE.search(name) is not None


def is_placeholder(value: str) -> bool:
    """`$PASSWORD`, `<your password>`: no secret, but what stands in the place of one."""
    return _STANDS_FOR.match(value) is not None


def is_description(value: str) -> bool:
    """ "required", "forgotten": no secret, but what is said of one."""
    return value.lower() in DESCRIPTION_WORDS or _HALF_SPOKEN.match(value) is not None or is_secret_name(value)


def has_letters_and_digits(value: str) -> bool:
    return any(one.isdigit() for one in value) and any(one.isalpha() for one in value)


def _value(match: re.Match[str]) -> Span:
    group = match.lastgroup or "bare"
    start, end = match.span(group)
    if group != "bare":
        return start, end
    value = match[group].rstrip(".?:")
    # "It is monkey!" is a cry, and in "Sommer2024!" the sign is a part of it.
    return start, start + len(value.rstrip("!") if value.rstrip("!").isalpha() else value)


def _given(match: re.Match[str], text: str, span: Span) -> bool:
    """Whether it is one, and no word that speaks of one: "password: required", "token: str"."""
    value = text[slice(*span)]
    if is_placeholder(value):
        return False
    if match["password"]:
        return _a_password(match, text, span)
    if match["beside"]:
        return len(value) >= 16 and has_letters_and_digits(value) and not _worded(value) and not _UUID.fullmatch(value)
    return len(value) >= (16 if match["said"] else 8) and has_letters_and_digits(value)


def _a_password(match: re.Match[str], text: str, span: Span) -> bool:
    value = text[slice(*span)]
    strong = len(value) >= 6 and (has_letters_and_digits(value) or _SIGNS.search(value) is not None)
    quoted = match.lastgroup != "bare"
    if match["beside"] and not (quoted and _LETTERS.fullmatch(value)):
        return strong and not _SCHEMES.fullmatch(value)
    if strong or value.isdigit():
        return True
    if is_description(value) or (match["said"] and _PARTICIPLE.fullmatch(value)):
        return False
    if match["phrase"] and quoted:
        return True
    return _LETTERS.fullmatch(value) is not None and (quoted or _CLAUSE_ENDS.match(text, span[1]) is not None)


def _worded(value: str) -> bool:
    return sum(map(len, re.findall(r"[a-z]{4,}", value))) >= len(value) / 2
