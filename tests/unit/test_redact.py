"""What is private is found, and what only looks like it stays."""

from __future__ import annotations

import sys
import time
from itertools import pairwise

import pytest
from examples import for_each

from engrain.core.errors import BackendMissing, InvalidInput
from engrain.core.secrets.redact import MARKS, PRIVATE_KINDS, find_private, make_redactor, redact_json, redact_text

JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U"
PEM = "-----BEGIN RSA PRIVATE KEY-----\nMIIEow==\n-----END RSA PRIVATE KEY-----"
TRUE = {
    "keys": [
        "sk-proj-abcdefghijklmnopqrstuvwx1234",
        "sk-ant-api03-abcdefghijklmnopqrstuvwx",
        "sk_live_4eC39HqLyjWDarjtT1zdp7dc",
        "rk_live_4eC39HqLyjWDarjtT1zdp7dc",
        "pk_test_TYooMQauvdEDq54NiTphI7jx",
        "ghp_16C7e42F292c6912E7710c838347Ae178B4a",
        "gho_16C7e42F292c6912E7710c838347Ae178B4a",
        "github_pat_11ABCDEFG0abcdefghijkl_mnopqrstuvwxyz",
        "glpat-ABCdef123456GHIjkl78",
        "AKIAIOSFODNN7EXAMPLE",
        "ASIAIOSFODNN7EXAMPLE",
        "AIzaSyDaGmWKa4JsXZ-HjGw7ISLn_3namBGewQe",
        "xoxb-123456789012-abcdefghijkl",
        "npm_abcdefghijklmnopqrstuvwxyz0123456789",
        "hf_abcdefghijklmnopqrstuvwxyzABCDEFGH",
        "SG.ngeVfQFYQlKU0ufo8x5d1A.TwL2iGABf9DHoTf09kqeF8tAmbihYzrnopKc",
        "dop_v1_" + "0123456789abcdef" * 4,
        "ya29.a0AfH6SMBx_abcdefghijklmnop",
        JWT,
        PEM,
        "-----BEGIN PRIVATE KEY-----\nMIIEow",
        "wJalrXUtnFEMI7K7MDENGbPxRfiCYEXAMPLEKEY9",
    ],
    "cards": [
        "4111111111111111",
        "4111 1111 1111 1111",
        "4111-1111-1111-1111",
        "4222222222222",
        "5555555555554444",
        "5105 1051 0510 5100",
        "2223003122003222",
        "378282246310005",
        "3782 822463 10005",
        "6011111111111117",
        "6011 0009 9013 9424",
        "30569309025904",
        "3530111333300000",
        "6200000000000005",
    ],
    "mails": [
        "ana@example.org",
        "ana.b+list@mail.example.co.uk",
        "ANA@EXAMPLE.ORG",
        "a_b%c@x-y.de",
        "josé@correo.es",
        "o'neil@example.com"[2:],
        "x@sub.sub.example.museum",
        "1234567890@example.com",
        "müller@straße.de",
    ],
    "phones": [
        "+49 170 1234567",
        "+491701234567",
        "+49 (0) 170 1234567",
        "+1 415 555 2671",
        "+1-415-555-2671",
        "+14155552671",
        "+44 20 7946 0958",
        "+351 912 345 678",
        "0049 170 1234567",
        "(415) 555-2671",
        "415-555-2671",
        "+51 987 654 321",
    ],
    "iban": [
        "DE89370400440532013000",
        "DE89 3704 0044 0532 0130 00",
        "GB82 WEST 1234 5698 7654 32",
        "FR1420041010050500013M02606",
        "NL91 ABNA 0417 1643 00",
        "BE68 5390 0754 7034",
        "ES91 2100 0418 4502 0005 1332",
        "CH93 0076 2011 6238 5295 7",
        "NO93 8601 1117 947",
        "de89370400440532013000",
    ],
}
# What is given away by the words before it, and no more than that.
IN_PLACE = [
    ("keys", "api_key = 'abcd1234efgh5678'", "api_key = '«key»'"),
    ("keys", "password: Sommer2024!", "password: «key»"),
    ("keys", 'AWS "secret_access_key": "abc123def456"', 'AWS "secret_access_key": "«key»"'),
    ("keys", "Authorization: Bearer abcdefghij1234567890", "Authorization: Bearer «key»"),
    ("keys", "postgresql://ana:geheim@host/db", "postgresql://ana:«key»@host/db"),
    ("phones", "Tel.: 0170 1234567", "Tel.: «phone»"),
    ("phones", "my phone number is 030 1234567", "my phone number is «phone»"),
    ("iban", "BE68 5390 0754 7034 THEN", "«iban» THEN"),
    ("cards", "order 12 4111 1111 1111 1111 today", "order 12 «card» today"),
    ("mails", "Write to ana@example.org.", "Write to «mail»."),
    ("mails", "<ana@example.org>, <ben@example.org>", "<«mail»>, <«mail»>"),
]
FALSE = [
    "Order 4111111111111112", "Order 1234567890123456", "Invoice 2024-0011-2233", "Ticket 0000 0000 0000 0000 1",
    "ISBN 978-3-16-148410-0", "EAN 4006381333931", "IMEI 490154203237518", "Tracking 1Z999AA10123456784",
    "2026-11-16", "2026-11-16T02:22:28.123456+00:00", "16.11.2026 02:22", "11/16/2026", "20261116022228",
    "1731723748000", "1731723748", "from 2019-2024", "1.2.3", "v10.20.30-rc.1", "3.11.4+build.5678901",
    "192.168.100.200", "10.0.0.1:8080", "2001:0db8:85a3:0000:0000:8a2e:0370:7334", "00:1A:2B:3C:4D:5E",
    "550e8400-e29b-41d4-a716-446655440000", "urn:uuid:550e8400-e29b-41d4-a716-446655440000",
    "commit 7df5eac", "7df5eac1c2b3a4958677685940312233445566aa", "sha256:" + "9f86d081884c7d65" * 4,
    "d41d8cd98f00b204e9800998ecf8427e", "cr2vtha1ktn39q2xt8dw1t806j", "01ARZ3NDEKTSV4RRFFQ69G5FAV",
    "3.141592653589793", "1,234,567,890", "12 345 678 901 234", "+12 345", "+100 points", "+1 000 000 000",
    "grew by +15.5 %", "a + b = 12345678", "5 + 1234567890", "C++11 and C++17",
    "@ana wrote", "ana@", "@example.org", "ana at example.org", "user@localhost", "git@", "a@b", "x@1.2.3.4",
    "foo@@bar.com", "npm install @scope/package@1.2.3", "decorator @property.setter",
    "sk-learn", "task-force", "sk_buff", "risk-assessment-of-the-whole-thing", "ask_the_user", "skip-to-the-next-one",
    "the token is short", "token: string", "max_tokens: 4096", "password: ********", "secret santa", "key: value",
    "api_key=os.environ", "The password is on the note", "Bearer of bad news", "AKIA is a prefix", "xoxo",
    "https://example.org/a/b:c@d", "http://localhost:8080/path", "file:///usr/lib/python3.11/site-packages",
    "DE89 is a code", "DE89370400440532013001", "GB82 WEST 1234 5698 7654 33", "NO93 people came",
    "AB12 CD34 EF56", "XX00 1234 5678 9012 3456", "Flight LH1234 to FR1420",
    "a_very_long_identifier_name_in_snake_case_without_digits", "AVeryLongCamelCaseNameOfAClassInSomeJavaCode",
    "src/engrain/stores/sqlite/migrations/0004_erasure.sql", "TEST_CASE_NUMBER_000000000000000000000001",
    "-----BEGIN PUBLIC KEY-----", "-----BEGIN CERTIFICATE-----", "eyJ is how they begin", "eyJhbGciOiJIUzI1NiJ9",
    "Call me at noon", "phone: none", "Tel Aviv 2024", "room 415-555", "555-2671", "123-456-7890", "§ 415-555-26711",
    "0049", "0041 is Switzerland", "00 49 days", "pi is 3.14159 26535 89793 23846", "9999 9999 9999 9999",
]  # fmt: skip


def test_there_are_enough_examples_of_either() -> None:
    assert sum(map(len, TRUE.values())) + len(IN_PLACE) >= 60
    assert len(FALSE) >= 60


@for_each(("kind", "text"), [(kind, text) for kind, texts in TRUE.items() for text in texts])
def test_what_is_private_is_marked(kind: str, text: str) -> None:
    mark = MARKS[kind]  # type: ignore[index]
    assert redact_text(text, (kind,)) == mark  # type: ignore[arg-type]
    assert redact_text(f"It is {text}, he said.") == f"It is {mark}, he said." or text.startswith("-----BEGIN PRIVATE")
    assert redact_text(f"({text})\nNext.") == f"({mark})\nNext." or text.startswith("-----BEGIN PRIVATE")


@for_each(("kind", "text", "wanted"), IN_PLACE)
def test_what_is_around_it_stays(kind: str, text: str, wanted: str) -> None:
    assert redact_text(text, (kind,)) == wanted  # type: ignore[arg-type]


@for_each("text", FALSE)
def test_what_only_looks_private_stays(text: str) -> None:
    assert redact_text(text) == text
    assert redact_text(f"See {text}, please.") == f"See {text}, please."


def test_redacting_again_changes_nothing() -> None:
    once = redact_text(" ".join(text for texts in TRUE.values() for text in texts))
    assert redact_text(once) == once


def test_a_mark_is_not_found_as_what_it_stands_for() -> None:
    text = "It is at postgres://ana:hunter2secret@db/x, with the key «key»."
    assert len(find_private(text)) == 1
    assert find_private(redact_text(text)) == []


def test_what_overlaps_is_one_mark() -> None:
    assert redact_text("https://ana:pw@example.org/x") == "https://ana:«key»@example.org/x"
    spans = [(one.start, one.end) for one in find_private("sk-ant-4111111111111111-abcdefgh ana@example.org@x.org")]
    assert spans == sorted(spans)
    assert all(left[1] <= right[0] for left, right in pairwise(spans))


def test_names_and_long_numbers_in_json_are_marked_too_and_nothing_is_lost() -> None:
    redact = make_redactor(["mails", "cards", "keys"])
    assert redact is not None
    given = {
        "ana@example.org": 1,
        "ben@example.org": {"card": 4111111111111111, "n": 7, "ok": True},
        3: None,
        "at": 1.5,
    }
    kept = {"«mail»": 1, "«mail» 2": {"card": "«card»", "n": 7, "ok": True}, 3: None, "at": 1.5}
    assert redact_json(given, redact) == kept
    assert redact_json(kept, redact) == kept
    assert redact_json([10**5_000, -(10**15)], redact) == [10**5_000, -(10**15)]
    many = {f"a{n}@example.org": n for n in range(50)}
    assert list(redact_json(many, redact).values()) == list(range(50))


def test_what_a_name_gives_away_is_marked() -> None:
    redact, cards = make_redactor(["keys"]), make_redactor(["cards"])
    assert redact is not None
    assert cards is not None
    given = {"db_password": "hunter2", "token": "str", "note": "hunter2", "deep": [{"api_key": "abcd1234efgh"}]}
    kept = {"db_password": "«key»", "token": "str", "note": "hunter2", "deep": [{"api_key": "«key»"}]}
    assert redact_json(given, redact) == kept
    assert redact_json(given, cards) == given


def test_only_what_was_asked_for_is_marked() -> None:
    text = "ana@example.org 4111111111111111"
    assert make_redactor(["cards"])(text) == "ana@example.org «card»"  # type: ignore[misc]
    assert make_redactor([]) is None


def test_a_function_of_one_s_own_comes_after() -> None:
    redact = make_redactor(["mails", lambda text: text.replace("Ana", "«name»")])
    assert redact is not None
    assert redact("Ana has ana@example.org") == "«name» has «mail»"
    assert make_redactor(str.upper)("x") == "X"  # type: ignore[misc]


@pytest.mark.parametrize("wanted", [["names"], "everything", 7, [7], {"keys": True}])
def test_an_unknown_kind_is_refused(wanted: object) -> None:
    with pytest.raises(InvalidInput):
        make_redactor(wanted)


def test_phones_need_their_library_and_the_rest_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "phonenumbers", None)
    with pytest.raises(BackendMissing, match=r'pip install "engrain\[redact\]"'):
        make_redactor(["mails", "phones"])
    assert make_redactor([one for one in PRIVATE_KINDS if one != "phones"])("ana@example.org") == "«mail»"  # type: ignore[misc]


@pytest.mark.parametrize(
    "text", ["(506) 234-5678", "0664 1234567", "010-2000-0000", "+44 7700 900123", "021 123 4567", "011 2345 6789"]
)
def test_a_number_of_many_a_country_is_found_with_no_word_before_it(text: str) -> None:
    assert redact_text(text, ("phones",)) == "«phone»"


@pytest.mark.parametrize("text", ["104.16.21.36", "0136.66688", "000-123-4567", "052.5200 013.4050"])
def test_a_number_of_no_country_stays(text: str) -> None:
    assert redact_text(text, ("phones",)) == text


def test_a_function_that_gives_no_text_is_refused() -> None:
    redact = make_redactor(lambda text: None)
    assert redact is not None
    with pytest.raises(InvalidInput):
        redact("x")


HOSTILE = [
    "a", "1", "1 ", "@", "a@", "a.", "+1 ", "+49", "eyJ", "sk-", "DE89", "DE89 ", "Aa1", "token=", "://a:b@", "4111 ",
    "0049 ", "tel 0", "-----BEGIN PRIVATE KEY-----", "AKIA", "é", "(415) ",
    "PIN ", "password is ", "password for a ", "curl -u a:b ", "--password ", "code ", "06 ", "call me at ",
    "cookie: a=b; ", "-----BEGIN CERTIFICATE-----", "seed phrase: abandon ", "login a pass ",
]  # fmt: skip


def _seconds(text: str) -> float:
    began = time.thread_time()
    redact_text(text)
    return time.thread_time() - began


@for_each("piece", HOSTILE)
def test_time_grows_with_the_length_and_no_faster(piece: str) -> None:
    short, long = (piece * (size // len(piece)) for size in (10_000, 80_000))
    # One of three: a collection of garbage may fall into any.
    assert any(_seconds(long) < 40 * max(_seconds(short), 0.001) for _ in range(3))


@pytest.mark.slow
@pytest.mark.parametrize("piece", HOSTILE)
def test_ten_megabytes_of_anything_take_seconds(piece: str) -> None:
    assert _seconds(piece * (10_000_000 // len(piece))) < 60


def test_every_kind_has_a_mark() -> None:
    assert set(MARKS) == set(PRIVATE_KINDS)


@for_each(
    ("text", "kept"),
    [
        ("https://u:pw@host/x", "https://u:«key»@host/x"),
        ("See https://ana:s3cret@db.example.org:5432/app.", "See https://ana:«key»@db.example.org:5432/app."),
        ("redis://:pw123@cache.example.com:6379/0", "redis://:«key»@cache.example.com:6379/0"),
        ("https://u:pa@ss@host.org/", "https://u:«key»@host.org/"),
        ("https://u:pw@host.org?to=ana@example.org", "https://u:«key»@host.org?to=«mail»"),
        ("https://git@example.org/x.git", "https://git@example.org/x.git"),
        ("https://example.org/ana@example.org", "https://example.org/«mail»"),
        ("https://example.org ana@example.org", "https://example.org «mail»"),
    ],
)
def test_of_a_url_with_a_password_the_host_stays(text: str, kept: str) -> None:
    assert redact_text(text) == kept
