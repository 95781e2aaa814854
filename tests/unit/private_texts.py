"""Texts with something private in them and texts that only look so, written without a look at the patterns.

No token here is whole in the source: each is put together when the tests run, so that no scanner takes it for a leak.
"""

from __future__ import annotations

import base64
import random
import string

from engrain.core.secrets.redact import PrivateKind

_draw = random.Random("a second list")


def _of(letters: str, size: int) -> str:
    return "".join(_draw.choice(letters) for _ in range(size))


def any62(size: int) -> str:
    return _of(string.ascii_letters + string.digits, size)


def hexes(size: int) -> str:
    return _of("0123456789abcdef", size)


def upper(size: int) -> str:
    return _of(string.ascii_uppercase + string.digits, size)


def lower(size: int) -> str:
    return _of(string.ascii_lowercase + string.digits, size)


def base(size: int) -> str:
    return base64.b64encode(_draw.randbytes(size)).decode()


def urlbase(size: int) -> str:
    return base64.urlsafe_b64encode(_draw.randbytes(size)).decode().rstrip("=")


def digits(size: int) -> str:
    return _of("123456789", 1) + _of("0123456789", size - 1)


def card(prefix: str, size: int) -> str:
    body = prefix + _of("0123456789", size - len(prefix) - 1)
    total = 0
    for place, digit in enumerate(reversed(body)):
        value = int(digit) * (2 if place % 2 == 0 else 1)
        total += value - 9 if value > 9 else value
    return body + str(-total % 10)


def in_fours(text: str, between: str = " ") -> str:
    return between.join(text[at : at + 4] for at in range(0, len(text), 4))


def iban(country: str, form: str) -> str:
    body = "".join(_of("0123456789", 1) if one == "n" else _of(string.ascii_uppercase, 1) for one in form)
    number = "".join(str(int(one, 36)) for one in body + country + "00")
    return f"{country}{98 - int(number) % 97:02d}{body}"


def pem(kind: str, lines: int = 6) -> str:
    body = "\n".join(base(48) for _ in range(lines))
    return f"-----BEGIN {kind}-----\n{body}\n-----END {kind}-----"


# Its kind, a text with it, and what must be gone of it.
GOES: list[tuple[PrivateKind, str, str]] = []


def gone(kind: PrivateKind, text: str, secret: str) -> None:
    assert secret in text, (text, secret)
    GOES.append((kind, text, secret))


# keys of services
s = "sk-proj-" + urlbase(96)
gone("keys", f"Here is my OpenAI key {s}, put it in the config", s)
s = "sk-" + any62(20) + "T3BlbkFJ" + any62(20)
gone("keys", f"export OPENAI_API_KEY={s}", s)
s = "sk-svcacct-" + urlbase(60)
gone("keys", f"client = OpenAI(api_key='{s}')", s)
s = "sk-admin-" + urlbase(60)
gone("keys", f"the org admin one is {s}.", s)
s = "sk-ant-api03-" + urlbase(69) + "AA"
gone("keys", f"ANTHROPIC_API_KEY: {s}", s)
s = "sk-ant-admin01-" + urlbase(69) + "AA"
gone("keys", f"use {s} for billing", s)
s = "sk-ant-oat01-" + urlbase(69) + "AA"
gone("keys", f'claude token "{s}"', s)
s = "ghp_" + any62(36)
gone("keys", f"git clone https://x-access-token:{s}@github.com/acme/app.git", s)
s = "ghp_" + any62(36)
gone("keys", f"mein GitHub-Token ist {s} bitte nicht weitergeben", s)
s = "github_pat_" + any62(22) + "_" + any62(59)
gone("keys", f"gh auth login --with-token <<< {s}", s)
s = "gho_" + any62(36)
gone("keys", f"oauth: {s}", s)
s = "ghs_" + any62(36)
gone("keys", f"GITHUB_TOKEN={s} npm run release", s)
s = "ghr_" + any62(76)
gone("keys", f"refresh {s}", s)
s = "glpat-" + urlbase(15)
gone("keys", f"curl --header 'PRIVATE-TOKEN: {s}' https://gitlab.com/api/v4/user", s)
s = "gldt-" + urlbase(15)
gone("keys", f"deploy token {s}", s)
s = "glrt-" + urlbase(15)
gone("keys", f"the runner registers with {s}", s)
s = "AKIA" + _of("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", 16)
gone("keys", f"aws_access_key_id = {s}", s)
s = "ASIA" + _of("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", 16)
gone("keys", f"temporary id {s} expires at noon", s)
s = base(30)
gone("keys", f"aws_secret_access_key = {s}", s)
s = base(30)
gone("keys", f"AWS secret: {s}", s)
s = base(300)
gone("keys", f"AWS_SESSION_TOKEN={s}", s)
s = "AIza" + urlbase(26)[:35]
gone("keys", f"<script src='https://maps.googleapis.com/maps/api/js?key={s}'></script>", s)
s = "AIza" + urlbase(27)[:35]
gone("keys", f"gemini key: {s}", s)
s = "ya29." + urlbase(120)
gone("keys", f"access token {s} from gcloud auth print-access-token", s)
s = "GOCSPX-" + urlbase(21)
gone("keys", f'"client_secret":"{s}"', s)
s = "1//0" + urlbase(70)
gone("keys", f'"refresh_token": "{s}"', s)
k = base(48)
s = f"-----BEGIN PRIVATE KEY-----\\n{base(48)}\\n{k}\\n-----END PRIVATE KEY-----\\n"
gone(
    "keys",
    '{"type": "service_account", "project_id": "acme-prod", "private_key_id": "'
    + hexes(40)
    + '", "private_key": "'
    + s
    + '", "client_email": "bot@acme-prod.iam.gserviceaccount.com"}',
    k,
)
s = base(64)
gone("keys", f"DefaultEndpointsProtocol=https;AccountName=acmestore;AccountKey={s};EndpointSuffix=core.windows.net", s)
s = any62(3) + "8Q~" + urlbase(26)[:34]
gone("keys", f"AZURE_CLIENT_SECRET={s}", s)
s = base(32)
gone("keys", f"Endpoint=sb://acme.servicebus.windows.net/;SharedAccessKeyName=Root;SharedAccessKey={s}", s)
s = base(32).replace("+", "%2B").replace("/", "%2F").replace("=", "%3D")
gone("keys", f"https://acme.blob.core.windows.net/docs/a.pdf?sv=2022-11-02&sp=r&se=2026-01-01&sig={s}", s)
s = lower(52)
gone("keys", f"azure devops PAT: {s}", s)
s = hexes(32)
gone("keys", f"Ocp-Apim-Subscription-Key: {s}", s)
s = "sk_live_" + any62(99)
gone("keys", f"stripe.api_key = '{s}'", s)
s = "sk_test_" + any62(24)
gone("keys", f"test mode {s}", s)
s = "rk_live_" + any62(24)
gone("keys", f"restricted key: {s}", s)
s = "whsec_" + any62(32)
gone("keys", f"webhook signing secret {s}", s)
s = f"xoxb-{digits(12)}-{digits(13)}-{any62(24)}"
gone("keys", f"slack bot token {s}", s)
s = f"xoxp-{digits(12)}-{digits(12)}-{digits(12)}-{hexes(32)}"
gone("keys", f"SLACK_TOKEN={s}", s)
s = f"xapp-1-A{upper(10)}-{digits(13)}-{hexes(64)}"
gone("keys", f"app level: {s}", s)
s = f"https://hooks.slack.com/services/T{upper(8)}/B{upper(10)}/{any62(24)}"
gone("keys", f"post to {s} when done", s.rsplit("/", 1)[1])
s = any62(68)
gone("keys", f"https://discord.com/api/webhooks/{digits(18)}/{s}", s)
s = f"M{any62(23)}.{any62(6)}.{urlbase(28)}"
gone("keys", f"DISCORD_TOKEN={s}", s)
s = f"{digits(10)}:AA{urlbase(24)}A"
gone("keys", f"telegram bot {s}", s)
s = hexes(32)
gone("keys", f"TWILIO_AUTH_TOKEN={s}", s)
s = "SK" + hexes(32)
gone("keys", f"twilio api key {s}", s)
s = f"SG.{urlbase(16)}.{urlbase(32)}"
gone("keys", f"sendgrid says {s} is active", s)
s = f"key-{hexes(32)}"
gone("keys", f"mailgun: {s}", s)
s = f"{hexes(32)}-us14"
gone("keys", f"MAILCHIMP_API_KEY={s}", s)
s = "npm_" + any62(36)
gone("keys", f"//registry.example.org/:_authToken={s}", s)
s = "npm_" + any62(36)
gone("keys", f"I made a new token: {s}", s)
s = "pypi-AgEIcHlwaS5vcmc" + urlbase(100)
gone("keys", f"[pypi]\nusername = __token__\npassword = {s}", s)
s = "hf_" + any62(34)
gone("keys", f"huggingface-cli login --token {s}", s)
s = "hf_" + any62(34)
gone("keys", f"le jeton est {s}", s)
s = "r8_" + any62(37)
gone("keys", f"replicate {s}", s)
s = "gsk_" + any62(52)
gone("keys", f"groq key {s} works", s)
s = "xai-" + any62(80)
gone("keys", f"grok: {s}", s)
s = "pplx-" + any62(48)
gone("keys", f"perplexity {s}", s)
s = "sk-or-v1-" + hexes(64)
gone("keys", f"openrouter {s}", s)
s = "nvapi-" + urlbase(48)
gone("keys", f"NVIDIA: {s}", s)
s = "tvly-" + any62(32)
gone("keys", f"tavily {s}", s)
s = "lsv2_pt_" + hexes(32) + "_" + hexes(10)
gone("keys", f"LANGSMITH_API_KEY={s}", s)
s = "pa-" + urlbase(32)
gone("keys", f"VOYAGE_API_KEY={s}", s)
s = "dop_v1_" + hexes(64)
gone("keys", f"doctl auth init -t {s}", s)
s = "hvs." + urlbase(70)
gone("keys", f"vault login {s}", s)
s = "dapi" + hexes(32)
gone("keys", f"databricks token {s}", s)
s = "shpat_" + hexes(32)
gone("keys", f"shopify access token {s}", s)
s = "EAA" + any62(150)
gone("keys", f"facebook {s}", s)
s = "sq0atp-" + urlbase(16)
gone("keys", f"square {s}", s)
s = "lin_api_" + any62(40)
gone("keys", f"linear {s}", s)
s = "secret_" + any62(43)
gone("keys", f"notion {s}", s)
s = "ntn_" + any62(46)
gone("keys", f"notion now gives {s}", s)
s = "figd_" + urlbase(30)
gone("keys", f"figma {s}", s)
s = "ATATT3xFfGF0" + urlbase(120) + "=" + upper(8)
gone("keys", f"jira {s}", s)
s = "PMAK-" + hexes(24) + "-" + hexes(34)
gone("keys", f"postman {s}", s)
s = "dckr_pat_" + urlbase(20)
gone("keys", f"docker login -u ana -p {s}", s)
s = "sntrys_" + base(80).rstrip("=")
gone("keys", f"SENTRY_AUTH_TOKEN={s}", s)
s = "glsa_" + any62(32) + "_" + hexes(8)
gone("keys", f"grafana {s}", s)
s = "NRAK-" + upper(27)
gone("keys", f"new relic {s}", s)
s = hexes(32)
gone("keys", f"DD_API_KEY={s}", s)
s = "fo1_" + urlbase(32)
gone("keys", f"FLY_API_TOKEN={s}", s)
s = "sbp_" + hexes(40)
gone("keys", f"supabase {s}", s)
s = "rubygems_" + hexes(48)
gone("keys", f"gem push with {s}", s)
s = "AGE-SECRET-KEY-1" + _of("QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L", 58)
gone("keys", f"age key: {s}", s)
s = "tskey-auth-" + any62(12) + "CNTRL-" + any62(32)
gone("keys", f"tailscale up --authkey={s}", s)
s = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9." + urlbase(60) + "." + urlbase(32)
gone("keys", f"the cookie was {s}; Path=/", s)
s = "eyJhbGciOiJSUzI1NiJ9." + urlbase(90) + "." + urlbase(256)
gone("keys", f"Authorization: Bearer {s}", s)

# private keys
for kind in (
    "RSA PRIVATE KEY",
    "EC PRIVATE KEY",
    "OPENSSH PRIVATE KEY",
    "PRIVATE KEY",
    "ENCRYPTED PRIVATE KEY",
    "DSA PRIVATE KEY",
):
    block = pem(kind)
    gone("keys", f"my key:\n{block}\nkeep it safe", block.split("\n")[3])
block = pem("PGP PRIVATE KEY BLOCK")
gone("keys", block, block.split("\n")[3])
block = "-----BEGIN RSA PRIVATE KEY-----\n" + "\n".join(base(48) for _ in range(4))
gone("keys", f"cut off paste {block}", block.split("\n")[3])
block = pem("RSA PRIVATE KEY").replace("\n", "\n    ")
gone("keys", f"key: |\n    {block}", block.split("\n")[3].strip())

# passwords in links, headers, commands, files
for scheme, host in (
    ("postgres", "db.acme.com:5432/app"),
    ("postgresql+asyncpg", "10.0.0.4/app"),
    ("mysql", "localhost:3306/x"),
    ("mongodb+srv", "cluster0.ab1cd.mongodb.net"),
    ("redis", "cache:6379/0"),
    ("amqp", "mq:5672/vhost"),
    ("https", "repo.acme.com/simple"),
    ("ftp", "files.acme.com"),
):
    s = any62(11)
    gone("keys", f"{scheme}://ana:{s}@{host}", s)
s = "tr0ub4dor"
gone("keys", f"redis://:{s}@cache:6379/0", s)
s = "p%40ssW0rd"
gone("keys", f"postgres://ana:{s}@db/app?sslmode=require", s)
s = "sommerregen"
gone("keys", f"mysql://root:{s}@localhost/shop", s)
s = "Kirschbaum!7"
gone("keys", f"Server=tcp:acme.database.windows.net,1433;Database=app;User ID=ana;Password={s};Encrypt=true", s)
s = "Xk92lmQa"
gone("keys", f"jdbc:postgresql://db/app?user=ana&password={s}", s)
s = "geheim99"
gone("keys", f"host=db user=ana password={s} dbname=app", s)
s = base64.b64encode(b"ana:Kirschbaum7").decode()
gone("keys", f"Authorization: Basic {s}", s)
s = any62(40)
gone("keys", f"curl -H 'Authorization: Bearer {s}' https://api.acme.com", s)
s = any62(40)
gone("keys", f"headers={{'Authorization': 'Token {s}'}}", s)
s = any62(32)
gone("keys", f"X-API-Key: {s}", s)
s = any62(26)
gone("keys", f"Cookie: sessionid={s}; theme=dark", s)
s = "Kirsche77"
gone("keys", f"curl -u ana:{s} https://api.acme.com/v1", s)
s = "kirschbaum"
gone("keys", f"curl --user ana:{s} https://api.acme.com/v1", s)
s = "hunter22"
gone("keys", f"wget --http-user=ana --http-password={s} https://acme.com/x", s)
s = "w1nterTag"
gone("keys", f"mysql -u root -p{s} shop", s)
s = "w1nterTag"
gone("keys", f"PGPASSWORD={s} psql -h db -U ana", s)
s = "w1nterTag"
gone("keys", f"sshpass -p '{s}' ssh ana@host", s)
s = "w1nterTag"
gone("keys", f"docker login -u ana --password {s}", s)
s = "bluemonday"
gone("keys", f"redis-cli -a {s} ping", s)
s = any62(50)
gone("keys", f"DJANGO_SECRET_KEY='{s}'", s)
s = "correct-horse-battery"
gone("keys", f"DB_PASSWORD={s}", s)
s = "letmein"
gone("keys", f"SMTP_PASS={s}\nSMTP_HOST=mail.acme.com", s)
s = "opensesame"
gone("keys", f"DATABASE_PASSWORD: {s}", s)
s = "swordfish"
gone("keys", f"password: {s}", s)
s = "correcthorse"
gone("keys", f"my password is {s}", s)
s = "correct horse battery staple"
gone("keys", f'my passphrase is "{s}"', s)
s = "monkey"
gone("keys", f"The wifi password is {s}.", s)
s = "Sonnenblume"
gone("keys", f"Mein Passwort lautet {s}", s)
s = "tournesol"
gone("keys", f"mon mot de passe est {s}", s)
s = "girasol"
gone("keys", f"mi contraseña es {s}", s)
s = "girassol"
gone("keys", f"minha senha é {s}", s)
s = "Sonnenblume12"
gone("keys", f"Das WLAN-Passwort: {s}", s)
s = "tournesol-12"
gone("keys", f"Mot de passe : {s}", s)
s = "girasol12"
gone("keys", f"contraseña: {s}", s)
s = "girassol12"
gone("keys", f"senha: {s}", s)
s = "hunter"
gone("keys", f"login: ana / password: {s}", s)
s = "Tr4velling"
gone("keys", f"username ana password {s}", s)
s = "dragonfly"
gone("keys", f'{{"user": "ana", "password": "{s}"}}', s)
s = "dragonfly"
gone("keys", f"<password>{s}</password>", s)
s = "dragonfly"
gone("keys", f"  password: '{s}'  # staging", s)
s = "4711"
gone("keys", f"my PIN is {s}", s)
s = "4711"
gone("keys", f"PIN {s}", s)
s = "4711"
gone("keys", f"PIN: {s}", s)
s = "0815"
gone("keys", f"Die PIN meiner Karte ist {s}", s)
s = "2580"
gone("keys", f"el PIN de la alarma es {s}", s)
s = "913 442"
gone("keys", f"Your verification code is {s}", s)
s = "481516"
gone("keys", f"Your one-time code: {s}. Do not share it.", s)
s = "G-481516"
gone("keys", f"{s} is your Google verification code.", s[2:])
s = "737"
gone("keys", f"card expires 03/27, CVV {s}", s)
s = "q9-Wd!33x"
gone("keys", f"I changed the password to {s} yesterday", s)
s = "JBSWY3DPEHPK3PXP"
gone("keys", f"otpauth://totp/Acme:ana?secret={s}&issuer=Acme", s)
s = any62(20)
gone("keys", f"client_secret={s}&grant_type=client_credentials", s)
s = any62(24)
gone("keys", f"?access_token={s}&limit=5", s)
s = any62(24)
gone("keys", f"the API token ({s}) goes into the header", s)
s = any62(30)
gone("keys", f'const apiKey = "{s}";', s)
s = any62(30)
gone("keys", f"spring.datasource.password={s}", s)
s = any62(30)
gone("keys", f"| api key | {s} |", s)
s = base(32)
gone("keys", f"ENCRYPTION_KEY={s}", s)
s = hexes(64)
gone("keys", f"JWT_SECRET={s}", s)
s = "abandon ability able about above absent absorb abstract absurd abuse access accident"
gone("keys", f"my seed phrase: {s}", s)
s = "0x" + hexes(64)
gone("keys", f"wallet private key {s}", s)
s = "5" + _of("JK", 1) + _of("123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz", 49)
gone("keys", f"bitcoin WIF private key: {s}", s)
s = f"machine api.acme.com login ana password {(p := any62(14))}"
gone("keys", s, p)

# cards
for prefix, size in (
    ("4", 16),
    ("4", 16),
    ("51", 16),
    ("55", 16),
    ("2221", 16),
    ("6011", 16),
    ("3528", 16),
    ("6212", 16),
    ("4", 13),
    ("4", 19),
):
    s = card(prefix, size)
    gone("cards", f"charge {s} please", s)
s = card("4", 16)
gone("cards", f"Karte {in_fours(s)} gültig bis 03/27", in_fours(s))
s = card("53", 16)
gone("cards", f"ma carte: {in_fours(s, '-')}.", in_fours(s, "-"))
s = card("37", 15)
s = f"{s[:4]} {s[4:10]} {s[10:]}"
gone("cards", f"amex {s}", s)
s = card("34", 15)
s = f"{s[:4]}-{s[4:10]}-{s[10:]}"
gone("cards", f"amex {s}", s)
s = card("36", 14)
s = f"{s[:4]} {s[4:10]} {s[10:]}"
gone("cards", f"diners {s}", s)
s = in_fours(card("4", 16), "\u00a0")
gone("cards", f"card no. {s}", s)
s = in_fours(card("4", 16), ".")
gone("cards", f"number {s}", s)
s = card("4", 16)
gone("cards", f'{{"number": {s}, "cvc": "123"}}', s)
s = card("4", 16)
gone("cards", f"PAN={s};exp=0327", s)
s = "".join(chr(0xFF10 + int(d)) for d in card("4", 16))
gone("cards", f"カード番号{s}", s)
s = card("4", 16)
gone("cards", f"カード番号は{s}です", s)

# mails
for s in (
    "ana@example.com",
    "ana.lima+news@sub.example.co.uk",
    "o'brien@example.ie",
    "ANA_LIMA@EXAMPLE.ORG",
    "a@b.io",
    "müller@beispiel.de",
    "ana@münchen.de",
    "用户@例子.公司",
    "ana-lima@my-firm.museum",
    "x_y.z%q@example.travel",
):
    gone("mails", f"write to {s} today", s)
s = "ana@example.com"
gone("mails", f"From: Ana <{s}>", s)
gone("mails", f"mailto:{s}?subject=hi", s)
gone("mails", f"{s},bea@example.com;", "bea@example.com")
gone("mails", f"(siehe {s}).", s)
gone("mails", f'"{s}"', s)
gone("mails", f"私のメールは{s}です", s)
s = "ana%40example.com"
gone("mails", f"https://acme.com/u?mail={s}&x=1", s)
s = "ana [at] example.com"
gone("mails", f"reach me: {s}", s)

# IBANs
FORMS = {
    "DE": "n" * 18,
    "FR": "n" * 10 + "n" * 11 + "nn",
    "ES": "n" * 20,
    "IT": "A" + "n" * 22,
    "GB": "AAAA" + "n" * 14,
    "NL": "AAAA" + "n" * 10,
    "CH": "n" * 17,
    "AT": "n" * 16,
    "BE": "n" * 12,
    "PT": "n" * 21,
    "PL": "n" * 24,
    "SE": "n" * 20,
    "NO": "n" * 11,
    "DK": "n" * 14,
    "FI": "n" * 14,
    "IE": "AAAA" + "n" * 14,
    "BR": "n" * 23 + "AA",
    "TR": "n" * 22,
    "AE": "n" * 19,
    "SA": "n" * 20,
    "MT": "AAAA" + "n" * 23,
    "GR": "n" * 23,
    "CZ": "n" * 20,
    "HU": "n" * 24,
    "RO": "AAAA" + "n" * 16,
    "IL": "n" * 19,
    "UA": "n" * 25,
    "LU": "n" * 16,
    "EG": "n" * 25,
    "IS": "n" * 22,
    "LT": "n" * 16,
    "CY": "n" * 24,
}
for at, (country, form) in enumerate(FORMS.items()):
    s = iban(country, form)
    if at % 2:
        s = in_fours(s)
    gone("iban", (f"IBAN {s}", f"pay to {s}, thanks", f"Konto: {s}.", f"my account is {s} at the bank")[at % 4], s)
s = iban("DE", FORMS["DE"]).lower()
gone("iban", f"iban {s}", s)
s = in_fours(iban("FR", FORMS["FR"]), "-")
gone("iban", f"RIB {s}", s)
s = in_fours(iban("DE", FORMS["DE"]), "\u00a0")
gone("iban", f"IBAN: {s}", s)
s = in_fours(iban("NL", FORMS["NL"]))
gone("iban", f"{s}\nBIC ABNANL2A", s)
s = iban("DE", FORMS["DE"])
gone("iban", f"IBAN:{s}", s)

# phones
for s in (
    "+49 30 901820",
    "+49 (0)30 90 18 20",
    "030 90182-0",
    "0151/23456789",
    "0049 151 2345 6789",
    "(0 30) 90 18 20",
    "0171-2345678",
):
    gone("phones", f"Ruf mich an: {s}", s)
for s in ("+33 6 12 34 56 78", "06 12 34 56 78", "06.12.34.56.78", "0033 6 12 34 56 78", "+33612345678", "0612345678"):
    gone("phones", f"appelle-moi au {s}", s)
for s in ("+34 612 345 678", "612 34 56 78", "91 123 45 67", "+34 91 123 45 67"):
    gone("phones", f"mi teléfono es el {s}", s)
for s in ("+91 98765 43210", "098765 43210", "+91-98765-43210", "98765 43210", "9876543210"):
    gone("phones", f"my phone number is {s}", s)
for s in ("+55 11 91234-5678", "(11) 91234-5678", "11 91234-5678", "+55 (11) 3123-4567", "(21) 2123-4567"):
    gone("phones", f"meu telefone: {s}", s)
for s in (
    "(415) 926-5358",
    "415-926-5358",
    "415.926.5358",
    "+1 415 926 5358",
    "1-415-926-5358",
    "1.415.926.5358",
    "+14159265358",
    "415 926 5358",
):
    gone("phones", f"call me at {s} after six", s)
for s in ("+44 7700 900123", "07700 900123", "020 7946 0958", "+44 (0)20 7946 0958"):
    gone("phones", f"ring me on {s}", s)
for s in (
    "+39 347 123 4567",
    "+41 79 123 45 67",
    "079 123 45 67",
    "+31 6 12345678",
    "06-12345678",
    "+48 601 234 567",
    "+351 912 345 678",
    "+86 138 1234 5678",
    "+81 90-1234-5678",
    "090-1234-5678",
    "+82 10-1234-5678",
    "+61 412 345 678",
    "0412 345 678",
    "+27 82 123 4567",
    "+52 55 1234 5678",
    "+54 9 11 1234-5678",
    "+7 912 345-67-89",
    "8 (912) 345-67-89",
    "+90 532 123 45 67",
    "+971 50 123 4567",
):
    gone("phones", f"Tel. {s}", s)
s = "+1 (415) 926-5358 ext. 22"
gone("phones", f"office {s}", "926-5358")
s = "tel:+14159265358"
gone("phones", f"<a href='{s}'>call</a>", "4159265358")
s = "4159265358"
gone("phones", f'{{"phone": "{s}"}}', s)

STAYS: list[str] = []


# versions, hashes, ids
STAYS.extend((
    "we run Python 3.11.9 and 3.12.1 side by side", "upgrade to v2.10.4-rc.1+build.20240301",
    "Chrome/124.0.6367.119 Safari/537.36", "kernel 5.15.0-105-generic", "SQLite 3.45.1 (2024-01-30)",
    "firmware 10.0.19045.4291", "numpy==1.26.4 pandas==2.2.2", "node v20.12.2, npm 10.5.0", "log4j-core-2.17.1.jar",
    "openssl 3.0.13 30 Jan 2024",
))  # fmt: skip
STAYS.extend((
    f"fixed in {hexes(40)}", f"see commit {hexes(7)}", f"git bisect bad {hexes(12)}",
    f"Merge {hexes(10)}..{hexes(10)} into main", f"sha256:{hexes(64)}", f"the image is redis@sha256:{hexes(64)}",
    f"md5 of the file: {hexes(32)}", f'ETag: "{hexes(32)}"', f"sha1sum says {hexes(40)}  a.iso",
    f"blake3 {hexes(64)}", f"integrity: sha512-{base(64)}", f"SHA256:{base(32).rstrip('=')} ana@host (ED25519)",
    f'hash = "sha256:{hexes(64)}"', f"sha384-{base(48)}",
))  # fmt: skip
STAYS.extend((
    "request 550e8400-e29b-41d4-a716-446655440000 failed", "id=6ba7b810-9dad-11d1-80b4-00c04fd430c8",
    "ULID 01ARZ3NDEKTSV4RRFFQ69G5FAV", "trace 4bf92f3577b34da6a3ce929d0e0e4736 span 00f067aa0ba902b7",
    "traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", f'ObjectId("{hexes(24)}")',
    "snowflake 1243567890123456789", "cus_NffrFeUfNV2Hib bought it", "pi_3MtwBwLkdIwHu7ix28a3tqPa succeeded",
    "instance i-0abcd1234efgh5678 in eu-west-1", "arn:aws:iam::123456789012:role/deploy", "ami-0c55b159cbfafe1f0",
    "vpc-0a1b2c3d4e5f67890", "gs://acme-bucket/2024/03/01/part-00001.parquet", "job 12345678 on node042",
    "pod api-7d9c5b8f6-x2x9z restarted", "container 4f5c9d0b1a2e", "thread 18f2c3d4e5a6b7c8",
    "session s-20240301-0042", "ticket ACME-12345 and JIRA-9",
))  # fmt: skip
# order numbers, invoices, postal
STAYS.extend((
    "order 100-4567890-1234567 has shipped", "invoice 2024-000123", "Rechnung Nr. 20240301-4711",
    "Bestellnummer 302-1234567-8901234", "tracking 1Z999AA10123456784", "parcel JD014600003828123456",
    "Sendungsnummer 00340434161094042557", "my customer number is 48291734", "ticket number 0123456789",
    "Aktenzeichen 12 O 345/24", "booking reference XK7P2Q", "flight LH 456 on 3 March", "seat 24A, gate B12",
    "part no. 06A-906-033", "SKU 8-12345-67890", "EAN 4006381333931", "UPC 036000291452", "PO 4500012345",
    "case 1:23-cv-04567", "patent US 10,123,456 B2",
))  # fmt: skip
# dates and times
STAYS.extend((
    "on 2024-03-01 at 10:15:30", "2024-03-01T10:15:30.123456Z", "01.03.2024 to 31.03.2024", "03/01/2024 - 03/31/2024",
    "20240301101530", "1709287530", "1709287530123", "born 1984-06-07", "the years 1914-1918 and 1939-1945",
    "Mon-Fri 09:00-17:30", "open 08 00 - 12 30", "12.12.2012 12:12:12", "week 2024-W09",
    "from 1. 3. 2024 until 5. 4. 2025", "at 06 12 34 UTC", "1999 2000 2001 2002", "le 06/12/2034 à 06h12",
    "RFC 3339 2024-03-01 10:15:30+01:00", "2024-03-01 2024-04-01 2024-05-01", "cron 0 12 * * 1-5",
))  # fmt: skip
# books, papers
STAYS.extend((
    "ISBN 978-3-16-148410-0", "ISBN 9780306406157", "ISBN-10 0-306-40615-2", "ISSN 2049-3630",
    "doi:10.1038/s41586-021-03819-2", "arXiv:2404.19756v2", "PMID 12345678", "ORCID 0000-0002-1825-0097",
    "RFC 9110 section 15.5.2", "pp. 123-145, vol. 12, no. 3456789",
))  # fmt: skip
# places and numbers
STAYS.extend((
    "52.520008, 13.404954", "lat 48.858844 lon 2.294351", "40°26′46″N 79°58′56″W", "geo:37.786971,-122.399677",
    "POINT(13.404954 52.520008)", "zip 10115 Berlin", "CEP 01310-100 São Paulo", "PIN code 110001 New Delhi",
    "75008 Paris", "SW1A 1AA London", "elevation 8848 m",
))  # fmt: skip
STAYS.extend((
    "pi is 3.14159265358979323846", "e = 2.718281828459045", "1,234,567,890 people", "1.234.567.890 Menschen",
    "12 345 678 habitants", "0.1 + 0.2 = 0.30000000000000004", "2^64 = 18446744073709551616",
    "1/3 = 0.3333333333333333", "6.02214076e23", "12 * 34 + 56 - 78 = 386", "100 000 000 000 stars",
    "1 2 3 4 5 6 7 8 9 10 11 12", "fibonacci 1 1 2 3 5 8 13 21 34 55 89 144", "x = 123456789", "sum(range(10000000))",
    "10 000 000 rows in 12 345 ms", "primes 10007 10009 10037 10039", "factorial 20 is 2432902008176640000",
    "matrix [[1, 0, 0], [0, 1, 0], [0, 0, 1]]", "scores: 98 97 88 76 65 43", "p = 0.00123, n = 12345",
    "binary 0101 1010 1100 0011", "hex 0xDEADBEEF and 0xCAFEBABE", "R² = 0.98765432",
    "phone book of 1,000,000 entries",
))  # fmt: skip
# money
STAYS.extend((
    "costs $1,299.00 plus tax", "€ 12.345.678,90", "R$ 1.234.567,89", "₹ 12,34,567.00", "USD 4,111,111,111.11",
    "from 1200 to 1500 euros", "price 415.92 per unit", "budget 2024: 1 234 567 €",
))  # fmt: skip
# networks
STAYS.extend((
    "ping 192.168.178.21", "10.0.0.0/8 and 172.16.0.0/12", "bind 0.0.0.0:8080",
    "2001:0db8:85a3:0000:0000:8a2e:0370:7334", "fe80::1ff:fe23:4567:890a", "MAC 00:1A:2B:3C:4D:5E",
    "port 5432 on 127.0.0.1", "ASN 64512", "8.8.8.8 and 8.8.4.4", "http://localhost:3000/users/12345678",
    "postgres://localhost:5432/app", "redis://cache:6379/0", "https://example.com/a/b?page=2&sort=desc",
    "ssh -p 2222 build-host", "ftp://files.example.com/pub/",
))  # fmt: skip
# chess, css, music, media
STAYS.extend((
    "rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - 0 1",
    "r1bqkb1r/pppp1ppp/2n2n2/4p2Q/2B1P3/8/PPPP1PPP/RNB1K1NR w KQkq - 4 4",
    "1. e4 e5 2. Nf3 Nc6 3. Bb5 a6 4. Ba4 Nf6 5. O-O Be7", "color: #ff8800; background: #1a2b3c4d;",
    "rgba(255, 128, 0, 0.5)", "M 10 80 C 40 10, 65 10, 95 80 S 150 150, 180 80",
    "transform: matrix(1, 0, 0, 1, 100, 100)", "x264 crf 23 1920x1080 60 fps", "C4 E4 G4 C5",
    "https://www.youtube.com/watch?v=dQw4w9WgXcQ", "https://open.spotify.com/track/4cOdK2wGLETKBW3PvgPWqT",
    "https://docs.google.com/document/d/1BxiMVs0XRA5nFMdKvBdBZjgmUUqptlbs74OgvE2upms/edit",
    "https://imgur.com/a/AbC12dE",
))  # fmt: skip
STAYS.extend((

    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==",
    '<img src="data:image/gif;base64,R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7">',
    "url(data:font/woff2;base64,d09GMgABAAAAAAPoAAoAAAAAB" + base(60).rstrip("=") + ")",
    "-----BEGIN CERTIFICATE-----\n"
    + "\n".join("MII" + base(45)[3:] for _ in range(3))
    + "\n-----END CERTIFICATE-----",
    pem("PUBLIC KEY", 3), "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI" + base(30) + " ana-laptop",
    "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAABgQ" + base(240).rstrip("="),
))  # fmt: skip
# talk of passwords, keys and codes without one
STAYS.extend((
    "I forgot my password again", "the password is wrong", "my password is too short",
    "the password is stored hashed", "password: required", "password must have 12 characters",
    "Please reset the password before Monday", "the password is the same as last year", "the password is not set",
    "password=None", "password: null", "password = getpass()", "password=os.environ['DB_PASSWORD']",
    "password: ${DB_PASSWORD}", "DB_PASSWORD={{ vault.db }}", "PASSWORD=<your password>", "api_key=YOUR_API_KEY",
    "api_key: str | None = None", "def login(user: str, password: str) -> None:", "token = next(tokens)",
    "token: Token", "secret: bool = False", "the key is under the mat", "the key is to listen",
    "the secret is patience", "the secret of the sauce is butter", "her secret is safe", "a token of my love",
    "tokens: 4096", "max_tokens=1024", "the token is expired", "a key point: sleep more", "key: value",
    "primary key: user_id", "foreign key (owner) references users", "press any key", "the key signature is G major",
    "Schlüssel liegt unter der Matte", "das Passwort ist falsch", "le mot de passe est oublié",
    "la contraseña es incorrecta", "a senha está errada", "mein Passwort habe ich vergessen",
    "use a password manager like Bitwarden", "password policy: rotate yearly", "passwords are boring",
    "sudo passwd ana", "--password-file /run/secrets/db", "PIN the message at the top",
    "pin 3 of the connector is ground", "pin 12 messages in this channel", "she bowled all 10 pins",
    "the pin on the map", "GPIO pin 17", "PIN diodes switch fast", "error code 404", "exit code: 137",
    "area code 415", "the code is 1200 lines long", "the code is in main.py", "code: E1101", "postcode 10115",
    "country code +49", "status code is 200", "HTTP code: 503", "a security code review", "CVE-2024-12345",
    "zip code 94107", "dress code: casual", "authorization: required for all routes", "Basic authentication is off",
    "Bearer tokens are preferred", "curl -u option sets the user", "curl -o out.html https://example.com",
    "docker run -p 8080:80 nginx", "mkdir -p /srv/app", "ssh -p 2222 host", "redis-cli -p 6379 ping",
    "psql -U ana -d app", "mysql -u root -p shop",
))  # fmt: skip
# code and words
STAYS.extend((
    "def test_a_stale_worker_cannot_write(memory): ...", "AbstractSingletonProxyFactoryBean",
    "com.example.billing.InvoiceServiceImpl", "src/engrain/core/redact.py:120",
    "C:\\Users\\ana\\AppData\\Local\\Temp", "/usr/lib/x86_64-linux-gnu/libssl.so.3",
    "Donaudampfschifffahrtsgesellschaftskapitän", "Rindfleischetikettierungsüberwachungsaufgabenübertragungsgesetz",
    "Llanfairpwllgwyngyllgogerychwyrndrobwllllantysiliogogogoch", "supercalifragilisticexpialidocious",
    "hippopotomonstrosesquippedaliophobia", "ACGTACGTTAGCTAGCTAGCATCGATCGATCGATCAGCTACGACTAGC",
    "MKTAYIAKQRQISFVKSHFSRQLEERLGLIEVQAPILSRVGDGTQDNLSGAEKAVQVKVKALPDAQFEVV",
    "InChI=1S/C8H10N4O2/c1-10-4-9-6-5(10)7(13)12(3)8(14)11(6)2/h4H,1-3H3", "CC(=O)OC1=CC=CC=C1C(=O)O",
    "^(?:[a-z0-9!#$%&'*+/=?^_`{|}~-]+)$", "const handleSubmitButtonClickedEvent = useCallback(() => {}, []);",
    "kubectl get pods -n kube-system -o wide", "SELECT * FROM users WHERE id = 12345678", "@ana can you look?",
    "meet @ 5 pm", "npm i @types/node@20", "the @dataclass decorator", "react@18.2.0 and vite@5",
    "A@B means matrix product", "sk-learn is a library", "sk-SK is Slovak", "pk_ is a prefix",
    "hf_hub_download(repo_id)", "npm_config_registry", "xoxo, grandma", "AKIA is a prefix of AWS",
    "the IBAN has 22 characters in Germany", "DE 2024 0001 0002 0003", "GB1234 is a flight",
    "FR76 is the prefix of a French IBAN", "DE89 3704 0044 0532 0130 01", "4111 1111 1111 1112",
    "1234 5678 9012 3456", "0000 0000 0000 0000", "credit 4 of 16 numbers", "tel aviv", "call me at noon",
    "phone 12 pro max", "iPhone 15 vs Pixel 8", "call 911", "dial 112", "extension 4711", "room 030-112",
    "+1 for this idea", "+49 % growth", "(2020) 12-34", "page 123-456", "lines 100-200 300-400",
    "rated 4.5 (1234) reviews",
))  # fmt: skip
