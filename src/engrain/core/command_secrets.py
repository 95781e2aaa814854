"""Find passwords that a command is given: `curl -u ana:…`, `--password …`."""

from __future__ import annotations

import re
from collections.abc import Iterator

from engrain.core.named_secrets import Span, places, speaks_of_one, stands_for_one

_SECRET = r"[\"']?(?P<secret>[^\s\"'-][^\s\"']{2,255})"
_LONG = re.compile(
    r"--(?:[a-z]{1,20}-){0,3}(?:password|passwd|pass|passphrase|token|secret|(?:api|access|secret)-?key)(?:=| {1,3})"
    + _SECRET
)
# A short option means a password only with its program: `docker run -u 1000:1000`, `mkdir -p`.
_SHORT = tuple(
    (re.compile(rf"(?<![\w.-])(?:{programs})(?![\w.-])"), re.compile(rf" -{option}{_SECRET}"))
    for programs, option in (
        ("curl|https?|wget", r"(?:u|U|a|-user|-proxy-user|-auth)[ =]?[\"']?[^\s:\"']{1,64}:"),
        ("mysql|mysqldump|mysqladmin|mariadb", "p"),
        ("sshpass|mongo|mongosh|mongodump|(?:docker|podman|registry) login", "p "),
        ("redis-cli", "a "),
        ("ldapsearch|ldapadd|ldapmodify", "w "),
        ("smbclient|rpcclient", r"U [^\s%\"']{1,64}%"),
    )
)
_LINE = 200  # letters before an option in which its program is looked for
# As in .netrc, and as people write it: "login ana password …".
_LOGIN = re.compile(
    r"(?<![a-z])(?:login|user|username)[ :=]{1,2}[^\s:=]{1,64}[\s,/]{1,3}pass(?:word)?[ :=]{1,2}"
    r"(?P<secret>[^\s\"',;()]{4,128})",
    re.IGNORECASE,
)
_SET = re.compile(
    r"(?:identified(?: with \w{1,40})? by +(?=[\"'])|requirepass +|masterauth +)" + _SECRET, re.IGNORECASE
)
_FOLLOWED = ((("login", "user"), _LOGIN), (("identified", "requirepass", "masterauth"), _SET))


def command_secrets(text: str, lower: str) -> Iterator[Span]:
    """Where they are, in no order; `lower` is the text in lower case, of the same length."""
    if "--" in text:
        yield from (match.span("secret") for match in _LONG.finditer(text) if _meant(match["secret"]))
    for program, option in _SHORT if " -" in text else ():
        for match in option.finditer(text):
            if program.search(text, max(0, match.start() - _LINE), match.start()) and _meant(match["secret"]):
                yield match.span("secret")
    for stems, pattern in _FOLLOWED:
        for at in places(lower, stems):
            followed = pattern.match(text, at)
            if followed and _meant(followed["secret"]):
                yield followed.span("secret")


def _meant(value: str) -> bool:
    return not stands_for_one(value) and not speaks_of_one(value)
