"""Find keys, tokens and passwords in a text."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from engrain.core.text.languages import load_languages

_CODE_STEMS = ("pin", "cvv", "cvc", "otp", "tan", "geheimzahl", "code", "código")
_CODE_NAME = re.compile(
    r"(?<![^\W_])(?:(?P<pin>pin)(?P<number>[- ]?(?:code|number|nummer))?|cvv2?|cvc2?|otp|tan|geheimzahl)(?![^\W_])"
    r"|(?:code|código) (?:de |d')?(?:vérification|verificación|verificação|sécurité|seguridad|segurança|secret|pin)"
    r"|code(?!\w)",
    re.IGNORECASE,
)
# "error code 404" is no secret.
_KIND_OF_CODE = re.compile(
    r"(?:verification|confirmation|authentication|security|one[- ]time|login|access|2fa|mfa|otp|sms|door|alarm|gate"
    r"|unlock|bestätigungs|sicherheits|einmal|zugangs)[- ]?$"
)
_MAX_KIND_CHARACTERS = 16
_DIGITS = r"(\d{3,8}|\d{3}[ -]\d{3})(?![\w-]|[.,]\d| \d)"
_IS = r"(?:is|ist|lautet|est|es|é)"
_STATED_CODE = re.compile(
    rf"(?:(?: [^\W\d]{{1,20}}){{0,5}}? {_IS}:? |'s |[\"']?[ \t]{{0,2}}[:=][ \t]{{0,2}}[\"']?){_DIGITS}", re.IGNORECASE
)
_ADJACENT_CODE = re.compile(rf" {_DIGITS}")
_CODE_BEFORE_NAME = re.compile(
    rf"\d(?<![\w.,]\d)(?:\d{{3,7}}|\d\d[ -]\d{{3}})(?= (?:as|{_IS}) (?:your|ihr|dein|votre|ton|su|tu|o seu|seu)\b"
    r"[^.\n\d]{0,40}c[oó]d)",
    re.IGNORECASE,
)

_OPTION_VALUE = r"[\"']?(?P<secret>[^\s\"'-][^\s\"']{2,255})"
_LONG_OPTION = re.compile(
    r"--(?:[a-z]{1,20}-){0,3}(?:password|passwd|pass|passphrase|token|secret|(?:api|access|secret)-?key)(?:=| {1,3})"
    + _OPTION_VALUE
)
# A short option means a password only with its program: `docker run -u 1000:1000`, `mkdir -p`.
_SHORT_OPTIONS = tuple(
    (re.compile(rf"(?<![\w.-])(?:{programs})(?![\w.-])"), re.compile(rf" -{option}{_OPTION_VALUE}"))
    for programs, option in (
        ("curl|https?|wget", r"(?:u|U|a|-user|-proxy-user|-auth)[ =]?[\"']?[^\s:\"']{1,64}:"),
        ("mysql|mysqldump|mysqladmin|mariadb", "p"),
        ("sshpass|mongo|mongosh|mongodump|(?:docker|podman|registry) login", "p "),
        ("redis-cli", "a "),
        ("ldapsearch|ldapadd|ldapmodify", "w "),
        ("smbclient|rpcclient", r"U [^\s%\"']{1,64}%"),
    )
)
_MAX_COMMAND_CHARACTERS = 200  # before an option, in which its program is looked for
# The form of .netrc, which people use too: "login ana password …".
_LOGIN_LINE = re.compile(
    r"(?<![a-z])(?:login|user|username)[ :=]{1,2}[^\s:=]{1,64}[\s,/]{1,3}pass(?:word)?[ :=]{1,2}"
    r"(?P<secret>[^\s\"',;()]{4,128})",
    re.IGNORECASE,
)
_SET_COMMAND = re.compile(
    r"(?:identified(?: with \w{1,40})? by +(?=[\"'])|requirepass +|masterauth +)" + _OPTION_VALUE, re.IGNORECASE
)
_PATTERNS_BY_STEM = ((("login", "user"), _LOGIN_LINE), (("identified", "requirepass", "masterauth"), _SET_COMMAND))

_PLAIN = r"[A-Za-z0-9]"
_PREFIXED_KEY = rf"(?:[a-z]{{2,10}}[-_]){{0,3}}(?=[A-Za-z]{{0,60}}\d){_PLAIN}{{16,}}+[\w-]*+"
_LIVE_KEY = rf"(?:live|test|prod)_(?:(?=[A-Za-z]{{0,60}}\d){_PLAIN}{{10,}}+|{_PLAIN}{{20,}}+)|{_PREFIXED_KEY}"
# The prefixes of well-known services' keys, and the pattern of what follows. The pattern is tried only behind a prefix:
# finding a plain string costs next to nothing.
_SERVICE_KEYS: Mapping[str, re.Pattern[str]] = {
    prefix: re.compile(follows)
    for prefixes, follows in (
        ("sk-", rf"(?:proj|svcacct|admin|ant|or|None)-[\w-]{{16,}}+|{_PREFIXED_KEY}"),  # OpenAI, Anthropic and others
        ("sk_ pk_ rk_ pk- rk-", _LIVE_KEY),  # Stripe and others
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
# Keys whose known mark stands in the middle or at the end.
_KEYS_WITH_INNER_MARK = (
    (".atlasv1.", re.compile(rf"(?<![\w.-]){_PLAIN}{{14}}\.atlasv1\.[\w-]{{60,}}+")),
    ("-us", re.compile(r"(?<![\w-])[a-f0-9]{32}-us\d{1,2}(?!\w)")),  # Mailchimp
    (":AA", re.compile(r"(?<![\w:])\d{8,10}:AA[\w-]{32,}+")),  # Telegram
    (".", re.compile(r"(?<![\w.-])[MNO][A-Za-z\d]{23,27}\.[\w-]{6}\.[\w-]{27,38}(?![\w.-])")),  # Discord
)
_URL_PASSWORD = re.compile(r"(?<![a-z])[a-z][a-z0-9+.-]{1,19}://[^\s:/@]{0,64}:([^\s/?#]{1,256})@")
_HEADER_VALUE = r"[A-Za-z0-9._~+/=-]"
_HEADER = re.compile(
    rf"(?<![a-z])bearer +({_HEADER_VALUE}{{16,}}+)"
    rf"|authorization[\"']?[ ]{{0,2}}[:=][ ]{{0,2}}[\"']?(?:basic|token|key|apikey) +({_HEADER_VALUE}{{8,}}+)",
    re.IGNORECASE,
)
_URL_SIGNATURE = re.compile(r"[?&](?:sig|signature|X-(?:Amz|Goog)-Signature)=([^\s&\"'<>]{20,256})")
_COOKIE_HEADER = re.compile(r"cookies?[\"']?[ ]{0,2}[:=][^\n]{1,4096}+", re.IGNORECASE)
_COOKIE_VALUE = re.compile(r"=([^\s;,=\"'«»]{16,512})(?=[;\s\"']|$)")
# A wallet gives twelve or more words of three to eight letters each.
_SEED_PHRASE = re.compile(
    r"(?:seed|recovery|mnemonic|backup)[ _-](?:phrase|words)(?: is)?[ :=]{1,3}[\"']?"
    r"(?P<words>[a-z]{3,8}(?: [a-z]{3,8}){11,23})(?![a-z])",
    re.IGNORECASE,
)
_LONG_WORD = re.compile(r"[^\s\"'`,;()<>]{32,}")
_RANDOM_STRING = re.compile(r"(?<![A-Za-z0-9+/_.-])[A-Za-z0-9+/_-]{32,128}+={0,2}(?![A-Za-z0-9+/_=-])")
# Hashes of files, as browsers and package managers write them, and public SSH keys.
_PUBLIC_PREFIX = re.compile(r"sha(?:1|256|384|512)-|AAAA[A-Z]3NzaC1|AAAAE2VjZHNh|AAAAGn")
# A string after one of these is public: a picture in a link, a fingerprint.
_PUBLIC_MARKS = (";base64,", "SHA256:")
_PUBLIC_BLOCK = re.compile(
    r"-----BEGIN (?:[A-Z0-9]{1,20} ){0,4}(?:CERTIFICATE|PUBLIC KEY)(?: BLOCK)?-----[A-Za-z0-9+/=\s]*+-----END "
)
_PRIVATE_KEY_START = re.compile(r"-----BEGIN (?:[A-Z0-9]{1,20} ){0,4}PRIVATE KEY(?: BLOCK)?-----")
_PRIVATE_KEY_END = re.compile(r"-----END (?:[A-Z0-9]{1,20} ){0,4}PRIVATE KEY(?: BLOCK)?-----")


def find_credentials(text: str, lower: str) -> Iterator[Span]:
    """Yield the spans of all secrets, in no order. Two may overlap. Names (`password = …`) are not part of a span.

    `lower` is the text in lower case, of the same length.
    """
    yield from find_service_keys(text)
    yield from _find_in_urls(text)
    yield from _find_in_headers(text, lower)
    yield from find_named_secrets(text, lower)
    yield from _find_codes(text, lower)
    yield from _find_command_secrets(text, lower)
    yield from _find_random_strings(text)
    yield from _find_private_keys(text)
    for at in find_stems(lower, ("seed", "recovery", "mnemonic", "backup")):
        if match := _SEED_PHRASE.match(text, at):
            yield match.span("words")


def find_service_keys(text: str) -> Iterator[Span]:
    """Yield the spans of keys that their form alone gives away."""
    for prefix, follows in _SERVICE_KEYS.items():
        at = text.find(prefix)
        while at >= 0:
            match = follows.match(text, at + len(prefix)) if _starts_word(text, at) else None
            if match:
                yield at, match.end()
            at = text.find(prefix, match.end() if match else at + len(prefix))
    for part, whole in _KEYS_WITH_INNER_MARK:
        if part in text:
            yield from (match.span() for match in whole.finditer(text))


def _starts_word(text: str, at: int) -> bool:
    """Tell if a word starts here, also after an escaped line break as in JSON."""
    before = text[at - 1] if at else " "
    if not (before.isascii() and (before.isalnum() or before in "_-")):
        return True
    return at > 1 and text[at - 2] == "\\" and before in "nrt"


def _find_in_urls(text: str) -> Iterator[Span]:
    if "://" in text:
        yield from (match.span(1) for match in _URL_PASSWORD.finditer(text) if not is_placeholder(match[1]))
    if "sig" in text or "Sig" in text:
        yield from (match.span(1) for match in _URL_SIGNATURE.finditer(text))


def _find_in_headers(text: str, lower: str) -> Iterator[Span]:
    for at in find_stems(lower, ("bearer", "authorization")):
        header = _HEADER.match(text, at)
        if header and (has_letters_and_digits(header[header.lastindex or 0]) or header[0].endswith("=")):
            yield header.span(header.lastindex or 0)
    if "cookie" in lower:
        for line in _COOKIE_HEADER.finditer(text):
            for match in _COOKIE_VALUE.finditer(text, *line.span()):
                if has_letters_and_digits(match[1]):
                    yield match.span(1)


def _find_codes(text: str, lower: str) -> Iterator[Span]:
    """Yield the spans of PINs, card codes and one-time codes."""
    for at in find_stems(lower, _CODE_STEMS):
        name = _CODE_NAME.match(text, at)
        if name is None:
            continue
        if name[0].lower() == "code" and not _KIND_OF_CODE.search(lower[max(0, at - _MAX_KIND_CHARACTERS) : at]):
            continue
        code = _STATED_CODE.match(text, name.end()) or _ADJACENT_CODE.match(text, name.end())
        if code and _is_code_length(name, code):
            yield code.span(1)
    if "cod" in lower or "cód" in lower:
        yield from (match.span() for match in _CODE_BEFORE_NAME.finditer(text))


def _is_code_length(name: re.Match[str], code: re.Match[str]) -> bool:
    digits = sum(character.isdigit() for character in code[1])
    if not name["pin"]:
        return bool(digits >= (3 if name[0][:2].lower() == "cv" else 4))
    # A number right after the name is a PIN only in capitals: "pin 4711" may be of a plug.
    # "PIN code 110001" is a place in India.
    if code.re is _ADJACENT_CODE:
        return digits >= 4 and name["pin"] == "PIN" and not (name["number"] and digits == 6)
    return bool(digits >= 4)


def _find_command_secrets(text: str, lower: str) -> Iterator[Span]:
    """Yield the spans of passwords in options of commands, logins and configuration."""
    if "--" in text:
        yield from (match.span("secret") for match in _LONG_OPTION.finditer(text) if _is_real(match["secret"]))
    for program, option in _SHORT_OPTIONS if " -" in text else ():
        for match in option.finditer(text):
            if program.search(text, max(0, match.start() - _MAX_COMMAND_CHARACTERS), match.start()) and _is_real(
                match["secret"]
            ):
                yield match.span("secret")
    for stems, pattern in _PATTERNS_BY_STEM:
        for at in find_stems(lower, stems):
            followed = pattern.match(text, at)
            if followed and _is_real(followed["secret"]):
                yield followed.span("secret")


def _is_real(value: str) -> bool:
    return not is_placeholder(value) and not is_description(value)


def _find_random_strings(text: str) -> Iterator[Span]:
    public = [match.span() for match in _PUBLIC_BLOCK.finditer(text)] if "-----BEGIN " in text else []
    for word in _LONG_WORD.finditer(text):
        if any(start < word.start() < end for start, end in public):
            continue
        for match in _RANDOM_STRING.finditer(text, *word.span()):
            if not text.endswith(_PUBLIC_MARKS, 0, match.start()) and _is_random(match[0]):
                yield match.span()


def _is_random(value: str) -> bool:
    """Tell a random string: several capitals, small letters and digits in one long piece, and high entropy."""
    if _PUBLIC_PREFIX.match(value):
        return False
    tests = (str.isupper, str.islower, str.isdigit)
    # Paths and names are made of short pieces and of words.
    longest = max(re.split(r"[/_+=-]", value), key=len)
    worded = sum(map(len, re.findall(r"[a-z]{3,}", value)))
    return (
        len(longest) >= 12
        and worded < len(value) / 2
        and all(any(map(test, longest)) and sum(map(test, value)) >= 3 for test in tests)
        and _measure_entropy(value) >= 4.2
    )


def _measure_entropy(value: str) -> float:
    """Return the bits per character."""
    shares = [count / len(value) for count in Counter(value).values()]
    return -sum(share * math.log2(share) for share in shares)


def _find_private_keys(text: str) -> Iterator[Span]:
    # Without an end mark, everything that follows is still the key.
    at = 0
    while begins := _PRIVATE_KEY_START.search(text, at):
        ends = _PRIVATE_KEY_END.search(text, begins.end())
        at = ends.end() if ends else len(text)
        yield begins.start(), at


Span = tuple[int, int]

# The pattern is tried only behind one of these stems: finding a plain string costs next to nothing.
_NAME_STEMS = (
    "pass", "kennwort", "contraseña", "senha", "wachtwoord", "пароль", "密", "パスワード", "비밀번호",
    "pw", "secret", "token", "pat", "api", "access", "account", "auth", "client", "encryption", "licen", "master",
    "private", "shared", "signing", "subscription",
)  # fmt: skip
_SECRET_NAME = (
    r"(?:(?P<password>passwor[dt]s?|passwd|pwd|(?<![a-z])pw(?![a-z])|pass[_ -]?code|(?<=mot de )passe|(?<=[_-])pass"
    r"|kennwort|contraseña|senha"
    r"|wachtwoord|пароль|密码|密碼|パスワード|비밀번호|(?P<phrase>pass[_ -]?phrase))"
    r"|(?:api|access|account|auth|client|encryption|licen[cs]e|master|private|shared|signing|subscription)[_ -]?key"
    r"|secret(?:[_ -]?(?:access[_ -]?)?key)?|token|(?<![a-z])pat)"
)
_PURPOSE = r"(?: (?:for|of|to|on|at|für|zum|zur|vom|von|de|del|du|da|do|pour|para)(?: [\w'.-]{1,30}){1,4}?)?"
_NAMED_VALUE = re.compile(
    _SECRET_NAME + r"(?:(?:\\?[\"'`])?[ \t\xa0]{0,3}(?:=>|[:=：]=?|-(?<= -)(?= ))[ \t\xa0]{0,3}|[\"']?>"
    rf"|(?P<said>{_PURPOSE} (?:is|was|ist|war|lautet|est|es|é):? |'s |是|は)"
    # Only the position marks the secret: a cell of a table, brackets, "password Sommer2024".
    r"|(?P<beside>[ \t]{1,3}(?:\|[ \t]{1,3}|\()"
    r"|(?: (?:has been|was))?(?: (?:re)?set| changed)?(?: from \S{1,64})? (?:to |auf |à |a )?))"
    r"(?:\\?\"(?P<double>[^\"\\\n]{4,256})\\?\"|'(?P<single>[^'\n]{4,256})'"
    # In the query of a URL the next name ends the value. A name before a bracket is a call, not a secret.
    r"|(?P<bare>(?>(?:(?!&\w{1,40}=)[^\s\"'`,;<>(){}\[\]|«»]){4,256}))(?![(\[{]))",
    re.IGNORECASE,
)
_SECRET_FIELD = re.compile(rf"(?:{_SECRET_NAME}|(?<![a-z])(?:pin|cvv|cvc|otp))$", re.IGNORECASE)
_INNER_SIGN = re.compile(r"\w[@#$%^&!]+\w")
_PLACEHOLDER = re.compile(
    r"[$%{<*\[«]|[/~.]|x{4}|[\d-]+(?:char|digit|letter|bit|byte)|your[_-]|(?:self|os|env)\.", re.IGNORECASE
)
_DESCRIPTION_PREFIX = re.compile(r"(?:case|read|write|non|not|auto|self|user|one|two)-", re.IGNORECASE)
_MAX_RESCANNED_CHARACTERS = 40
_WORD = re.compile(r"[^\W\d_]{4,}(?:-[^\W\d_]+)*")
# A secret is the last word of its clause: "the password is swordfish.", not "the password is stored as a hash".
_CLAUSE_END = re.compile(r"[.!]?[ \t]*(?:$|\n)|[.!]\s|[,;)\]}&<|#]|[ \t]+(?:[/#|&;-]|[\w.-]{1,40}=)")
_PARTICIPLE = re.compile(
    r"\w{3,}(?:ed|able|ible|ée?s?|[ai]d[oa]s?)|(?:ge|ver|ab|be|ent|zurück)\w{3,}(?:t|en)", re.IGNORECASE
)
_SCHEME_NAME = re.compile(r"(?:sha|md|base|oauth|argon|pbkdf|bcrypt|scrypt|aes|utf|1password)[\w-]*", re.IGNORECASE)
_UUID = re.compile(r"[\da-f]{8}(?:-[\da-f]{4}){3}-[\da-f]{12}", re.IGNORECASE)


def find_named_secrets(text: str, lower: str) -> Iterator[Span]:
    """Yield the spans of the values, in no order, without their names.

    `lower` is the text in lower case, of the same length.
    """
    for stem in _NAME_STEMS:
        at = lower.find(stem)
        while at >= 0:
            match = _NAMED_VALUE.match(text, at)
            at = lower.find(stem, at + len(stem))
            if match is None:
                continue
            span = _find_value(match)
            if _is_secret(match, text, span):
                yield span
            # A long value is not scanned again, so that a text of nothing but names is read in linear time.
            if 0 <= at < span[1] and span[1] - span[0] > _MAX_RESCANNED_CHARACTERS:
                at = lower.find(stem, span[1])


def find_stems(lower: str, stems: Sequence[str]) -> Iterator[int]:
    """Yield the offset of every stem in the text."""
    for stem in stems:
        at = lower.find(stem)
        while at >= 0:
            yield at
            at = lower.find(stem, at + len(stem))


def is_secret_name(name: str) -> bool:
    """Tell if a field of this name holds a secret: {"password": …}."""
    return _SECRET_FIELD.search(name) is not None


def is_placeholder(value: str) -> bool:
    """Tell a placeholder, such as `$PASSWORD` or `<your password>`, from a secret."""
    return _PLACEHOLDER.match(value) is not None


def is_description(value: str) -> bool:
    """Tell a word that describes a secret, such as "required" or "forgotten", from a secret."""
    return (
        value.lower() in load_languages().words["secret_description"]
        or _DESCRIPTION_PREFIX.match(value) is not None
        or is_secret_name(value)
    )


def has_letters_and_digits(value: str) -> bool:
    return any(character.isdigit() for character in value) and any(character.isalpha() for character in value)


def _find_value(match: re.Match[str]) -> Span:
    group = match.lastgroup or "bare"
    start, end = match.span(group)
    if group != "bare":
        return start, end
    value = match[group].rstrip(".?:")
    # In "It is monkey!" the sign ends the sentence. In "Sommer2024!" it belongs to the password.
    return start, start + len(value.rstrip("!") if value.rstrip("!").isalpha() else value)


def _is_secret(match: re.Match[str], text: str, span: Span) -> bool:
    """Tell a secret from a word about one: "password: required", "token: str"."""
    value = text[slice(*span)]
    if is_placeholder(value):
        return False
    if match["password"]:
        return _is_password(match, text, span)
    if match["beside"]:
        return (
            len(value) >= 16
            and has_letters_and_digits(value)
            and not _is_mostly_words(value)
            and not _UUID.fullmatch(value)
        )
    return len(value) >= (16 if match["said"] else 8) and has_letters_and_digits(value)


def _is_password(match: re.Match[str], text: str, span: Span) -> bool:
    value = text[slice(*span)]
    strong = len(value) >= 6 and (has_letters_and_digits(value) or _INNER_SIGN.search(value) is not None)
    quoted = match.lastgroup != "bare"
    if match["beside"] and not (quoted and _WORD.fullmatch(value)):
        return strong and not _SCHEME_NAME.fullmatch(value)
    if strong or value.isdigit():
        return True
    if is_description(value) or (match["said"] and _PARTICIPLE.fullmatch(value)):
        return False
    if match["phrase"] and quoted:
        return True
    return _WORD.fullmatch(value) is not None and (quoted or _CLAUSE_END.match(text, span[1]) is not None)


def _is_mostly_words(value: str) -> bool:
    return sum(map(len, re.findall(r"[a-z]{4,}", value))) >= len(value) / 2
