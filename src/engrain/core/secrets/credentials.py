"""Find keys, tokens and passwords in a text."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping

from engrain.core.secrets.named import (
    Span,
    find_named_secrets,
    find_stems,
    has_letters_and_digits,
    is_description,
    is_placeholder,
)

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


def _find_codes(text: str, lower: str) -> Iterator[Span]:
    """Where they are, in no order; `lower` is the text in lower case, of the same length."""
    for at in find_stems(lower, _STEMS):
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


def _find_command_secrets(text: str, lower: str) -> Iterator[Span]:
    """Where they are, in no order; `lower` is the text in lower case, of the same length."""
    if "--" in text:
        yield from (match.span("secret") for match in _LONG.finditer(text) if _meant(match["secret"]))
    for program, option in _SHORT if " -" in text else ():
        for match in option.finditer(text):
            if program.search(text, max(0, match.start() - _LINE), match.start()) and _meant(match["secret"]):
                yield match.span("secret")
    for stems, pattern in _FOLLOWED:
        for at in find_stems(lower, stems):
            followed = pattern.match(text, at)
            if followed and _meant(followed["secret"]):
                yield followed.span("secret")


def _meant(value: str) -> bool:
    return not is_placeholder(value) and not is_description(value)


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
        ("EAA", rf"{_PLAIN}{{80,}}+"),  # Facebook
        ("SG.", r"[\w-]{16,}+\.[\w-]{16,}+"),
        ("doo_v1_ dop_v1_ dor_v1_ sbp_ dapi shpat_ shpca_ shppa_ shpss_ rubygems_", r"[a-f0-9]{32,64}+(?:-\d)?(?!\w)"),
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
_LOGIN_LINE = re.compile(r"(?<![a-z])[a-z][a-z0-9+.-]{1,19}://[^\s:/@]{0,64}:([^\s/?#]{1,256})@")
_VALUE = r"[A-Za-z0-9._~+/=-]"
_HEADER = re.compile(
    rf"(?<![a-z])bearer +({_VALUE}{{16,}}+)"
    rf"|authorization[\"']?[ ]{{0,2}}[:=][ ]{{0,2}}[\"']?(?:basic|token|key|apikey) +({_VALUE}{{8,}}+)",
    re.IGNORECASE,
)
_SIGNED = re.compile(r"[?&](?:sig|signature|X-(?:Amz|Goog)-Signature)=([^\s&\"'<>]{20,256})")
_COOKIES = re.compile(r"cookies?[\"']?[ ]{0,2}[:=][^\n]{1,4096}+", re.IGNORECASE)
_COOKIE = re.compile(r"=([^\s;,=\"'«»]{16,512})(?=[;\s\"']|$)")
# Twelve words and more of three to eight letters each, as a wallet gives them.
_WALLET = re.compile(
    r"(?:seed|recovery|mnemonic|backup)[ _-](?:phrase|words)(?: is)?[ :=]{1,3}[\"']?"
    r"(?P<words>[a-z]{3,8}(?: [a-z]{3,8}){11,23})(?![a-z])",
    re.IGNORECASE,
)
_WORD = re.compile(r"[^\s\"'`,;()<>]{32,}")
_RANDOM = re.compile(r"(?<![A-Za-z0-9+/_.-])[A-Za-z0-9+/_-]{32,128}+={0,2}(?![A-Za-z0-9+/_=-])")
# The hash of a file, as browsers and package managers write it, and the public half of an SSH key.
_PUBLIC = re.compile(r"sha(?:1|256|384|512)-|AAAA[A-Z]3NzaC1|AAAAE2VjZHNh|AAAAGn")
# What is public by its form: a picture in a link, a fingerprint, a certificate.
_NO_SECRET = (";base64,", "SHA256:")
_PUBLIC_BLOCK = re.compile(
    r"-----BEGIN (?:[A-Z0-9]{1,20} ){0,4}(?:CERTIFICATE|PUBLIC KEY)(?: BLOCK)?-----[A-Za-z0-9+/=\s]*+-----END "
)
_BEGINS = re.compile(r"-----BEGIN (?:[A-Z0-9]{1,20} ){0,4}PRIVATE KEY(?: BLOCK)?-----")
_ENDS = re.compile(r"-----END (?:[A-Z0-9]{1,20} ){0,4}PRIVATE KEY(?: BLOCK)?-----")


def find_credentials(text: str, lower: str) -> Iterator[Span]:
    """Where they are, in no order; two may overlap. Of what is named (`password = …`) the name stays. `lower` is the
    text in lower case, of the same length."""
    yield from find_service_keys(text)
    yield from _in_urls(text)
    yield from _in_headers(text, lower)
    yield from find_named_secrets(text, lower)
    yield from _find_codes(text, lower)
    yield from _find_command_secrets(text, lower)
    yield from _random_words(text)
    yield from _private_keys(text)
    for at in find_stems(lower, ("seed", "recovery", "mnemonic", "backup")):
        if match := _WALLET.match(text, at):
            yield match.span("words")


def find_service_keys(text: str) -> Iterator[Span]:
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


def _begins(text: str, at: int) -> bool:
    """A word begins here; after a line break that is written out, as in JSON, too."""
    before = text[at - 1] if at else " "
    if not (before.isascii() and (before.isalnum() or before in "_-")):
        return True
    return at > 1 and text[at - 2] == "\\" and before in "nrt"


def _in_urls(text: str) -> Iterator[Span]:
    if "://" in text:
        yield from (match.span(1) for match in _LOGIN_LINE.finditer(text) if not is_placeholder(match[1]))
    if "sig" in text or "Sig" in text:
        yield from (match.span(1) for match in _SIGNED.finditer(text))


def _in_headers(text: str, lower: str) -> Iterator[Span]:
    for at in find_stems(lower, ("bearer", "authorization")):
        header = _HEADER.match(text, at)
        if header and (has_letters_and_digits(header[header.lastindex or 0]) or header[0].endswith("=")):
            yield header.span(header.lastindex or 0)
    if "cookie" in lower:
        for line in _COOKIES.finditer(text):
            for match in _COOKIE.finditer(text, *line.span()):
                if has_letters_and_digits(match[1]):
                    yield match.span(1)


def _random_words(text: str) -> Iterator[Span]:
    public = [match.span() for match in _PUBLIC_BLOCK.finditer(text)] if "-----BEGIN " in text else []
    for word in _WORD.finditer(text):
        if any(start < word.start() < end for start, end in public):
            continue
        for match in _RANDOM.finditer(text, *word.span()):
            if not text.endswith(_NO_SECRET, 0, match.start()) and _random(match[0]):
                yield match.span()


def _private_keys(text: str) -> Iterator[Span]:
    """Each to its end, or to that of the text: without an end, what follows is still the key."""
    at = 0
    while begins := _BEGINS.search(text, at):
        ends = _ENDS.search(text, begins.end())
        at = ends.end() if ends else len(text)
        yield begins.start(), at


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
