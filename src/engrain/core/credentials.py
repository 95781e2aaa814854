"""Find keys, tokens and passwords in a text."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping

Span = tuple[int, int]

_PLAIN = r"[A-Za-z0-9]"
_OWN = rf"(?:[a-z]{{2,10}}[-_]){{0,3}}(?=[A-Za-z]{{0,60}}\d){_PLAIN}{{16,}}+[\w-]*+"
_LIVE = rf"(?:live|test|prod)_(?:(?=[A-Za-z]{{0,60}}\d){_PLAIN}{{10,}}+|{_PLAIN}{{20,}}+)|{_OWN}"
# What the keys of well-known services begin with, and what follows. A service's own prefix is looked for as it stands,
# which costs next to nothing; the pattern is tried only behind it.
_SERVICES: Mapping[str, re.Pattern[str]] = {
    prefix: re.compile(follows)
    for prefixes, follows in (
        ("sk-", rf"(?:proj|svcacct|admin|ant|or|None)-[\w-]{{16,}}+|{_OWN}"),  # OpenAI, Anthropic and others
        ("sk_ pk_ rk_ pk- rk-", _LIVE),  # Stripe and others
        ("ghp_ gho_ ghu_ ghs_ ghr_", rf"{_PLAIN}{{20,}}+"),
        ("github_pat_", r"(?=[A-Za-z_]{0,60}\d)\w{20,}+"),
        ("glpat- gldt- glrt- glcbt- glptt- glft- glimt- glagent- glsoat-", r"[\w-]{16,}+"),
        ("AKIA ASIA", r"[A-Z0-9]{12,28}+(?!\w)"),
        ("AIza", r"[\w-]{20,}+"),
        ("GOCSPX-", r"[\w-]{20,}+"),
        ("ya29.", r"[\w-]{20,}+"),
        ("xoxa- xoxb- xoxe- xoxo- xoxp- xoxr- xoxs- xapp-", r"[\w-]{10,}+"),
        ("https://hooks.slack.com/services/", rf"{_PLAIN}{{8,}}+/{_PLAIN}{{8,}}+/{_PLAIN}{{16,}}+"),
        ("https://discord.com/api/webhooks/", r"\d{16,20}/[\w-]{40,}+"),
        ("npm_ hf_ ntn_ secret_ gsk_ nfp_ whsec_ lin_api_", rf"(?=[A-Za-z]{{0,60}}[A-Z\d]){_PLAIN}{{30,}}+"),
        ("pypi-", r"[\w-]{50,}+"),
        ("xai- pplx- tvly- r8_", rf"(?=[A-Za-z]{{0,60}}[A-Z\d]){_PLAIN}{{24,}}+"),
        ("SG.", r"[\w-]{16,}+\.[\w-]{16,}+"),
        ("doo_v1_ dop_v1_ dor_v1_ sbp_ dapi shpat_ shpca_ shppa_ shpss_", r"[a-f0-9]{32,64}+(?:-\d)?(?!\w)"),
        ("lsv2_pt_ lsv2_sk_", r"[a-f0-9]{32}_[a-f0-9]{10}"),
        ("pcsk_ figd_ dckr_pat_ pscale_tkn_ pscale_pw_ glsa_ glc_", r"(?=\D{0,60}\d)[\w=-]{24,}+"),
        ("fo1_ fm2_ sntrys_ sntryu_ ATATT3 ATCTT3 ATBB", r"(?=\D{0,60}\d)[\w=-]{28,}+"),
        ("hvs. hvb.", r"[\w-]{20,}+"),
        ("dp.pt. dp.st. dp.sa. dp.ct.", r"[\w.-]{40,}+"),
        ("NRAK- HRKU-", r"[\w-]{24,}+"),
        ("PMAK-", r"[a-f0-9]{24}-[a-f0-9]{34}"),
        ("SK key-", r"[a-f0-9]{32}(?![\w-])"),  # Twilio, Mailgun
        ("sq0atp- sq0csp-", r"[\w-]{22,}+"),
        ("access-production- access-sandbox- access-development-", r"[a-f0-9]{8}(?:-[a-f0-9]{4}){3}-[a-f0-9]{12}"),
        ("AGE-SECRET-KEY-1", r"[A-Z0-9]{40,}+"),
        ("pat", rf"{_PLAIN}{{14}}\.[a-f0-9]{{64}}"),  # Airtable
        ("eyJ", r"[\w-]{10,}+\.[\w-]{10,}+(?:\.[\w-]*+){0,3}"),  # a JSON web token
    )
    for prefix in prefixes.split()
}
# Those that have what is known in their middle or at their end.
_WITHIN = (
    (".atlasv1.", re.compile(rf"(?<![\w.-]){_PLAIN}{{14}}\.atlasv1\.[\w-]{{60,}}+")),
    ("-us", re.compile(r"(?<![\w-])[a-f0-9]{32}-us\d{1,2}(?!\w)")),  # Mailchimp
    (":AA", re.compile(r"(?<![\w:])\d{8,10}:AA[\w-]{32,}+")),  # Telegram
    (".", re.compile(r"(?<![\w.-])[MNO][A-Za-z\d]{23,27}\.[\w-]{6}\.[\w-]{27,38}(?![\w.-])")),  # Discord
)
_LOGIN = re.compile(r"(?<![a-z])[a-z][a-z0-9+.-]{1,19}://[^\s:/@]{0,64}:([^\s/?#]{1,256})@")
_VALUE = r"[A-Za-z0-9._~+/=-]"
_HEADER = re.compile(
    rf"(?<![a-z])bearer +({_VALUE}{{16,}}+)"
    rf"|authorization[\"']?[ ]{{0,2}}[:=][ ]{{0,2}}[\"']?(?:basic|token|key|apikey) +({_VALUE}{{8,}}+)",
    re.IGNORECASE,
)
_PASSWORDS = (
    r"passwor[dt]|passwd|pwd|pass[_ -]?phrase|pass[_ -]?code|kennwort|mot de passe|contraseña|senha|wachtwoord|пароль"
    r"|密码|密碼|パスワード|비밀번호"
)
_NAME = rf"(?:(?P<password>{_PASSWORDS})|(?:api|access|account)[_ -]?key|secret(?:[_ -]?(?:access[_ -]?)?key)?|token)"
_NAMED = re.compile(
    _NAME + r"(?:\\?[\"'`])?(?:[ \t\xa0]{0,3}(?:=>|[:=：]=?)[ \t]{0,3}|(?P<said> (?:is|ist|est|es):? |是|は))"
    r"(?:\\?\"(?P<double>[^\"\\\n]{4,256})\\?\"|'(?P<single>[^'\n]{4,256})'"
    # Of a query in a URL the next name ends it; before a bracket stands a call, which gives nothing away.
    r"|(?P<bare>(?:(?!&\w{1,40}=)[^\s\"'`,;<>(){}\[\]«»]){4,256}+)(?![(\[{]))",
    re.IGNORECASE,
)
_IN_NAMES = (
    "pass",
    "pwd",
    "key",
    "secret",
    "token",
    "kennwort",
    "contrase",
    "senha",
    "wacht",
    "парол",
    "密",
    "パス",
    "비밀",
)
_SIGNS = re.compile(r"\w[@#$%^&!]+\w")
_STANDS_FOR = re.compile(
    r"[$%{<*\[«]|[/~.]|x{4}|[\d-]+(?:char|digit|letter|bit|byte)|your[_-]|(?:self|os|env)\.", re.IGNORECASE
)
_WORD = re.compile(r"[^\s\"'`,;()<>]{32,}")
_RANDOM = re.compile(r"(?<![A-Za-z0-9+/_.-])[A-Za-z0-9+/_-]{32,128}+={0,2}(?![A-Za-z0-9+/_=-])")
# The hash of a file, as browsers and package managers write it, and the public half of an SSH key.
_PUBLIC = re.compile(r"sha(?:1|256|384|512)-|AAAA[A-Z]3NzaC1|AAAAE2VjZHNh|AAAAGn")
_BEGINS = re.compile(r"-----BEGIN (?:[A-Z0-9]{1,20} ){0,4}PRIVATE KEY(?: BLOCK)?-----")
_ENDS = re.compile(r"-----END (?:[A-Z0-9]{1,20} ){0,4}PRIVATE KEY(?: BLOCK)?-----")


def credentials(text: str) -> Iterator[Span]:
    """Where they are, in no order; two may overlap. Of what is named (`password = …`) the name stays."""
    yield from service_keys(text)
    if "://" in text:
        yield from (match.span(1) for match in _LOGIN.finditer(text) if not _STANDS_FOR.match(match[1]))
    lower = text.lower()
    if "bearer" in lower or "authorization" in lower:
        for match in _HEADER.finditer(text):
            if _mixed(match[match.lastindex or 0]) or match[0].endswith("="):
                yield match.span(match.lastindex or 0)
    if any(one in lower for one in _IN_NAMES):
        yield from _named(text)
    for word in _WORD.finditer(text):
        for match in _RANDOM.finditer(text, *word.span()):
            if _random(match[0]):
                yield match.span()
    yield from _private_keys(text)


def service_keys(text: str) -> Iterator[Span]:
    """Keys of services that can be known by their form alone."""
    for prefix, follows in _SERVICES.items():
        at = text.find(prefix)
        while at >= 0:
            match = follows.match(text, at + len(prefix)) if _begins(text, at) else None
            if match:
                yield at, match.end()
            at = text.find(prefix, match.end() if match else at + len(prefix))
    for part, whole in _WITHIN:
        if part in text:
            yield from (match.span() for match in whole.finditer(text))


def names_a_secret(name: str) -> bool:
    """Whether what has this name is a secret: {"password": …}."""
    return re.search(_NAME + "$", name, re.IGNORECASE) is not None


def _begins(text: str, at: int) -> bool:
    """A word begins here; after a line break that is written out, as in JSON, too."""
    before = text[at - 1] if at else " "
    if not (before.isascii() and (before.isalnum() or before in "_-")):
        return True
    return at > 1 and text[at - 2] == "\\" and before in "nrt"


def _named(text: str) -> Iterator[Span]:
    for match in _NAMED.finditer(text):
        group = match.lastgroup or "bare"
        start, end = match.span(group)
        if group == "bare":
            end = start + len(match[group].rstrip(".?:"))
        if _given(text[start:end], bool(match["password"]), bool(match["said"])):
            yield start, end


def _given(value: str, password: bool, said: bool) -> bool:
    """Whether it is one, and no word that speaks of one: "password: required", "token: str"."""
    if _STANDS_FOR.match(value):
        return False
    if password:
        return value.isdigit() or (len(value) >= 6 and (_mixed(value) or _SIGNS.search(value) is not None))
    return len(value) >= (16 if said else 8) and _mixed(value)


def _private_keys(text: str) -> Iterator[Span]:
    """Each to its end, or to that of the text: without an end, what follows is still the key."""
    at = 0
    while begins := _BEGINS.search(text, at):
        ends = _ENDS.search(text, begins.end())
        at = ends.end() if ends else len(text)
        yield begins.start(), at


def _mixed(value: str) -> bool:
    return any(one.isdigit() for one in value) and any(one.isalpha() for one in value)


def _random(value: str) -> bool:
    """Upper case, lower case and digits, each several and in one long piece, and no pattern in them."""
    if _PUBLIC.match(value):
        return False
    tests = (str.isupper, str.islower, str.isdigit)
    # Paths and names are made of short pieces and of words.
    longest = max(re.split(r"[/_+=-]", value), key=len)
    worded = sum(map(len, re.findall(r"[a-z]{3,}", value)))
    return (
        len(longest) >= 12
        and worded < len(value) / 2
        and all(any(map(test, longest)) and sum(map(test, value)) >= 3 for test in tests)
        and _entropy(value) >= 4.2
    )


def _entropy(value: str) -> float:
    """Bits a character."""
    shares = [count / len(value) for count in Counter(value).values()]
    return -sum(share * math.log2(share) for share in shares)
