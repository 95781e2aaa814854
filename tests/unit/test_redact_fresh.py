"""A second list, written before a look at the patterns, and a third of harder ones, written after the mend.

What the patterns found at the first look at each is told in docs/how-to/redact.md.
"""

from __future__ import annotations

import pytest
from examples import for_each
from unit.private_texts import GOES, STAYS, any62, base, digits, hexes, urlbase

from engrain.core.secrets.redact import make_redactor, redact_json, redact_text

HARDER_TO_SEE = [
    ("Hi, the new password for the staging server is {}, please save it", "Zebra-99-lake"),
    ("pw: {}", "Trombone44"),
    ("user: bea\npass: {}", "Trombone44"),
    ("my email password's {}", "Trombone44"),
    ("Password - {}", "Trombone44"),
    ("passwort={}", "Posaune"),
    ("the admin password: {}, the user: root", "Posaune"),
    ("Use password '{}' to log in", "posaune"),
    ("your password has been reset to {}", "Posaune44"),
    ("My bank PIN's {}", "9021"),
    ("pin number is {}", "9021"),
    ("the PIN for the garage is {}.", "9021"),
    ("ma carte a pour code PIN {}", "9021"),
    ("Meine Geheimzahl ist {}", "9021"),
    ("Your OTP is {}", "551 902"),
    ("Use {} as your verification code", "551902"),
    ("Ihr Bestätigungscode lautet {}", "551902"),
    ("the door code is {}", "5519"),
    ("TAN: {}", "551902"),
    ("curl -XPOST -u 'bea:{}' https://x.example", "geige"),
    ("curl https://x.example --user bea:{}", "geige"),
    ("http -a bea:{} GET x.example", "geige"),
    ("mysql -h db -uroot -p{} app", "Geige55"),
    ("export MYSQL_PWD={}", "geige"),
    ("psql postgresql://bea:{}@db:5432/app", "geige"),
    ("ALTER USER bea WITH PASSWORD '{}'", "geige"),
    ("CREATE USER bea IDENTIFIED BY '{}'", "geige"),
    ("requirepass {}", "geige"),
    ("spring.redis.password: {}", "geige"),
    ("kubectl create secret generic db --from-literal=password={}", "geige"),
    ("token={}", hexes(40)),
    ("x-auth-token: {}", hexes(32)),
    ("Authorization: ApiKey {}", base(30)),
    ("the bearer token is {}", any62(40)),
    ("COHERE_API_KEY={}", any62(40)),
    ("{}", "sk-" + any62(48)),
    ("SUPABASE_SERVICE_ROLE_KEY={}", "eyJhbGciOiJIUzI1NiJ9." + urlbase(60) + "." + urlbase(32)),
    ("{}", "xoxc-" + digits(12) + "-" + any62(30)),
    *(
        ("you can reach the office under {} from nine", number)
        for number in (
            "+49-89-636-48018", "089/636-48018", "+43 1 58858-0", "044 668 18 00", "02 9876 5432", "0161 496 0000",
            "(02) 9876 5432", "+55 21 98765 4321", "(11) 98765 4321", "022-2778 2183", "+91 22 2778 2183",
            "01 42 68 53 00", "+1.415.926.5358", "1 (415) 926-5358", "(415)926-5358", "+46 8 123 456 78",
        )
    ),
    ("an {} schicken", "bea.k@firma.example.de"),
    ("an {} schicken", "bea@xn--mnchen-3ya.de"),
    ("an {} schicken", "bea(at)firma.de"),
]  # fmt: skip
# Nothing names these, or what names them names other things too. Told in docs/how-to/redact.md.
NOT_SEEN = [
    "the password was changed from Posaune44 to Geige55",
    "echo 'geige' | docker login --password-stdin",
    "ssh key passphrase: violin cello harp",
    "deepl key 8a7b1c2d-1234-4abc-9def-1234567890ab:fx",
    "my password is violin for now",
    "you can reach the office under 91 98765 43210 from nine",
]
HARDER_TO_TELL = [
    "the new password must be long", "password changed successfully", "Password updated.", "enter password:",
    "Password: ", "password_hash = hash(password)", "user.password = form.password",
    "if not password: raise ValueError", "passwords do not match", "forgot password?", "the password field is empty",
    "set a strong password", "my password was leaked in 2019", "the password for the portal is shared",
    "the password is the dog's name", "the password is in the vault", "our wifi password is taped to the router",
    "password: string // min 8", "password: z.string().min(8)", "password: { type: String, required: true }",
    '<input type="password" name="password">', 'label for="password">Password</label>', '"password": "Passwort"',
    "password = request.form.get('password')", "token: ${{ secrets.GITHUB_TOKEN }}", "token is refreshed hourly",
    "the secret: work hard", "secret: managed by vault", "auth token expires in 3600 seconds",
    "tokenizer = AutoTokenizer.from_pretrained('bert-base-uncased')", "the access key rotates every 90 days",
    "use the api key from the dashboard", "private key is in ~/.ssh/id_ed25519", "public key: see keys.example.com",
    "the pin is loose", "pin: 12", "pins 4 to 8 are ground", "PIN 13 drives the LED", "the PIN has 4 digits",
    "enter your PIN", "code 200 means fine", "the code is 42", "access code of conduct", "coupon code SAVE20",
    "QR code 21x21", "the error code is 1045", "promo code: SUMMER24", "source code 12000 lines",
    "from 06 to 12 to 18", "06 12 2024", "01/02/03 04", "1 800 units", "in 2019 2020 and 2021",
    "scores 10-8 12-10 11-9", "HS 8471 30 00", "GTIN 00012345600012", "Konto wurde am 01.02.2024 gebucht",
    "12-34-56 is a sort code", "ranges 0-9 10-19 20-29", "0800 1630 opening", "Mo-Fr 0800-1630", "room 0412",
    "chapter 01 section 02", "lot 0345-22", "call 3 times", "ring the bell at 10", "text me tomorrow at 8",
    "reach me at the office", "handy tools 2024 list", "cell A1 to B200", "cell 12 of the table 34",
    "fax machine 3000", "phone 2 of 10", "tel: see website", "mobile first 2024-2025",
    "whatsapp group with 12 people", "docker run -u 1000:1000 img", "chown -R app:app /srv",
    "curl -I https://x.example", "scp -P 22 a b", "git push -u origin main", "tar -p -xf a.tar",
    "npm run build -- --token-limit 4000", "--password is deprecated", "use --token to authenticate",
    "pass --secret or set it", "seed phrase backup is important", "backup words in a safe",
    "Cookie: theme=dark; lang=en", "cookies: none", "sig=abc&x=1", "signature: J. Doe", "@media (max-width: 600px)",
    "a@b.c", "meet (at) noon", "100%40 off", "basic: true", "Bearer: the man",
]  # fmt: skip


@for_each(("kind", "text", "secret"), GOES)
def test_what_is_private_goes(kind: str, text: str, secret: str) -> None:
    assert secret not in redact_text(text)


@for_each("text", STAYS)
def test_what_only_looks_private_stays(text: str) -> None:
    assert redact_text(text) == text


@for_each(("around", "secret"), HARDER_TO_SEE)
def test_what_is_harder_to_see_goes_too(around: str, secret: str) -> None:
    kept = redact_text(around.replace("{}", secret))
    assert secret not in kept
    assert redact_text(kept) == kept


@for_each("text", HARDER_TO_TELL)
def test_what_is_harder_to_tell_from_it_stays(text: str) -> None:
    assert redact_text(text) == text


@for_each("text", NOT_SEEN)
def test_what_no_form_gives_away_is_not_found(text: str) -> None:
    assert redact_text(text) == text


def test_the_list_is_long_enough_to_mean_something() -> None:
    assert len(GOES) >= 150
    assert len(set(STAYS)) >= 200


def test_a_number_with_a_private_name_goes_from_json() -> None:
    redact = make_redactor(["keys", "phones"])
    assert redact is not None
    given = {"pin": 4711, "cvv": "737", "phone": "4159265358", "mobile": 9876543210, "pins": 4, "ok": True, "token": 42}
    kept = {"pin": "«key»", "cvv": "«key»", "phone": "«phone»", "mobile": "«phone»", "pins": 4, "ok": True, "token": 42}
    assert redact_json(given, redact) == kept


def test_a_letter_that_grows_in_lower_case_moves_no_mark() -> None:
    assert redact_text("İİİ my password is Sommer2024 İ") == "İİİ my password is «key» İ"
    assert redact_text("İ call me at 415 926 5358") == "İ call me at «phone»"


@pytest.mark.parametrize("spoken", ["version {}", "Release {}", "Chrome/{}", "v{}", "build {}"])
def test_a_version_is_no_phone(spoken: str) -> None:
    text = spoken.format("1.415.926.5358")
    assert redact_text(text) == text
    assert redact_text("call 1.415.926.5358") == "call «phone»"
