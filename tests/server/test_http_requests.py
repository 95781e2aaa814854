"""Requests that are repeated, wrong, too large or too many, and the answer to each."""

from __future__ import annotations

import json
import socket
import tempfile
import threading
import time
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from examples import for_each
from server_kit import RunningServer, run_server

from engrain import Memory, Scope
from engrain.core import errors
from engrain.server.access import OpenAccess
from engrain.server.app import ApiOptions
from engrain.server.json_body import parse_json_body
from engrain.server.keys import KeyLimits
from engrain.server.problems import STATUS_OF_ERROR, TITLES, Problem, to_problem

JSON = {"Content-Type": "application/json"}


@pytest.fixture
def client(server: RunningServer) -> httpx.Client:
    return server.client(server.add_key("ana", user="ana"))


def check_problem(answer: httpx.Response, status: int) -> dict[str, object]:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    document = answer.json()
    assert document["status"] == status
    assert document["title"] == TITLES[status]
    assert document["detail"]
    return document  # type: ignore[no-any-return]


# Repeated requests


def test_a_repeated_request_returns_the_first_answer_and_changes_nothing(client: httpx.Client) -> None:
    def send() -> httpx.Response:
        return client.post(
            "/v1/add_message",
            json={"role": "user", "text": "Hello.", "session": "s"},
            headers={"Idempotency-Key": "r-1"},
        )

    first, second = send(), send()
    assert first.status_code == second.status_code == 200
    assert first.json() == second.json()
    assert client.get("/v1/sessions/s/length").json() == {"length": 1}


def test_a_key_that_is_repeated_for_another_request_is_a_conflict(client: httpx.Client) -> None:
    headers = {"Idempotency-Key": "r-1"}
    assert client.post("/v1/remember", json={"text": "One."}, headers=headers).status_code == 200
    document = check_problem(client.post("/v1/remember", json={"text": "Two."}, headers=headers), 409)
    assert document["error"] == "Conflict"
    assert [one["text"] for one in client.get("/v1/items").json()["items"]] == ["One."]


def test_the_same_key_of_two_users_is_two_requests(server: RunningServer) -> None:
    ids = set()
    for user in ("ana", "ben"):
        with server.client(server.add_key(user, user=user)) as client:
            answer = client.post("/v1/remember", json={"text": user}, headers={"Idempotency-Key": "r-1"})
            ids.add(answer.json()["id"])
    assert len(ids) == 2


def test_a_write_that_cannot_honour_the_key_refuses_it(client: httpx.Client) -> None:
    headers = {"Idempotency-Key": "r-1"}
    document = check_problem(client.post("/v1/working/set_goal", json={"goal": "x"}, headers=headers), 400)
    assert "Idempotency-Key" in str(document["detail"])
    assert client.post("/v1/recall", json={"query": "x"}, headers=headers).status_code == 200


def test_an_expected_length_that_is_wrong_is_a_conflict(client: httpx.Client) -> None:
    body = {"role": "user", "text": "Hello.", "session": "s", "expect": 5}
    check_problem(client.post("/v1/add_message", json=body), 409)


# Wrong requests


def test_without_a_valid_key_nothing_is_answered(server: RunningServer) -> None:
    key = server.add_key("ana", user="ana")
    for given in (None, "wrong", "engrain_00000000_x", key[:-1], key + "x", key.replace("engrain", "other")):
        answer = server.client(given).get("/v1/items")
        check_problem(answer, 401)
        assert answer.headers["www-authenticate"].startswith("Bearer")
    basic = server.client().get("/v1/items", headers={"Authorization": f"Basic {key}"})
    check_problem(basic, 401)


def test_an_unknown_path_is_404_and_a_wrong_method_405_with_the_allowed_ones(client: httpx.Client) -> None:
    check_problem(client.get("/v1/nothing"), 404)
    answer = client.post("/v1/items/x")
    check_problem(answer, 405)
    assert answer.headers["allow"] == "DELETE, GET, PATCH"
    assert client.post("/healthz").headers["allow"] == "GET"


def test_a_missing_item_is_404(client: httpx.Client) -> None:
    assert check_problem(client.get("/v1/items/x"), 404)["error"] == "NotFound"
    assert check_problem(client.patch("/v1/items/x", json={"pinned": True}), 404)["error"] == "NotFound"


BROKEN = [
    (b"{", 400), (b"", 422), (b"[]", 422), (b"null", 422), (b'"text"', 422), (b"\xff", 400), (b"\xef\xbb\xbf{}", 400),
    (b'{"text": "a", "text": "b"}', 400), (b'{"text": NaN}', 400), (b'{"text": "a", "importance": Infinity}', 400),
    (b'{"text": "a", "importance": 1e999}', 422), (b'{"text": "a", "importance": "0.5"}', 422),
    (b'{"text": "a", "importance": true}', 422), (b'{"text": "a", "importance": 2}', 422),
    (b'{"text": "a", "metadata": {"n": 99999999999999999999999}}', 422), (b'{"text": "a\\u0000"}', 422),
    (b'{"text": "\\ud800"}', 422), (b'{"text": " "}', 422), (b'{"text": 5}', 422), (b'{"text": "a", "more": 1}', 422),
    (b'{"text": "a", "occurred_at": "yesterday"}', 422), (b"[" * 100_000, 400),
    (b'{"text": "a", "metadata": ' + b'{"a":' * 200 + b"1" + b"}" * 200 + b"}", 422),
    (b'{"text": "a", "slot": "session:x"}', 422),
]  # fmt: skip


def test_a_body_that_cannot_be_used_is_refused_and_nothing_is_written(client: httpx.Client) -> None:
    for body, status in BROKEN:
        answer = client.post("/v1/remember", content=body, headers=JSON)
        assert answer.status_code == status, (body[:60], answer.text)
        check_problem(answer, status)
    assert client.get("/v1/items").json() == {"items": []}


def test_a_key_that_is_repeated_among_many_is_found_in_linear_time() -> None:
    keys = [f"k{number}" for number in range(30_000)]
    body = json.dumps(dict.fromkeys(keys, 0)).encode()[:-1] + f', "{keys[-1]}": 1}}'.encode()
    began = time.thread_time()
    with pytest.raises(Problem, match=keys[-1]):
        parse_json_body(body)
    assert time.thread_time() - began < 2


def test_a_whole_number_may_be_written_with_a_point(client: httpx.Client) -> None:
    client.post("/v1/remember", json={"text": "Ana likes tea."})
    answer = client.post("/v1/recall", content=b'{"query": "tea", "n": 3.0}', headers=JSON)
    assert len(answer.json()["hits"]) == 1
    for wrong in (b"3.5", b"true", b'"3"', b"0", b"99999999999999999999"):
        body = b'{"query": "tea", "n": ' + wrong + b"}"
        check_problem(client.post("/v1/recall", content=body, headers=JSON), 422)


def test_a_query_is_checked_like_a_body(client: httpx.Client) -> None:
    assert client.get("/v1/items?limit=3&history=true").status_code == 200
    for query in ("limit=x", "limit=3.0", "limit=0", "limit=1&limit=2", "history=1", "unknown=1", "after=%00"):
        check_problem(client.get(f"/v1/items?{query}"), 422)
    check_problem(client.post("/v1/remember?text=a", json={"text": "a"}), 422)


def test_a_body_must_say_that_it_is_json(client: httpx.Client) -> None:
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"):
        answer = client.post("/v1/remember", content=b'{"text": "a"}', headers={"Content-Type": kind})
        check_problem(answer, 415)
    utf8 = {"Content-Type": "Application/JSON; charset=utf-8"}
    assert client.post("/v1/remember", content=b'{"text": "a"}', headers=utf8).status_code == 200


def test_names_in_a_path_may_hold_marks(client: httpx.Client, server: RunningServer) -> None:
    server.store.memory(user="ana").remember("Tea.", slot="a/b:c+ü")
    assert client.get("/v1/slots/a%2Fb%3Ac%2B%C3%BC").json()["text"] == "Tea."
    check_problem(client.get("/v1/slots/%FF"), 400)


def test_pages_of_other_sites_are_not_answered(client: httpx.Client) -> None:
    check_problem(client.post("/v1/end_session", headers={"Origin": "https://evil.example"}), 403)
    answer = client.options("/v1/remember", headers={"Origin": "https://evil.example"})
    assert not [name for name in answer.headers if name.startswith("access-control")]


def test_without_keys_only_local_names_are_answered(tmp_path: Path) -> None:
    with run_server(tmp_path, open_access=OpenAccess(Scope(user="ana"))) as server:
        client = server.client()
        assert client.get("/v1/scope").status_code == 200
        check_problem(client.get("/v1/scope", headers={"Host": "evil.example"}), 403)
        check_problem(client.get("/v1/scope", headers={"Engrain-User": "ben"}), 403)
        assert client.get("/v1/store/memories").status_code == 403


# Errors of the library


@for_each("kind", sorted((one for one in vars(errors).values() if isinstance(one, type)), key=lambda one: one.__name__))
def test_every_error_has_a_status(kind: type) -> None:
    if not issubclass(kind, (errors.EngrainError, errors.LeaseLost)):
        return
    arguments: tuple[object, ...] = ("what", "extra") if kind is errors.BackendMissing else ("message",)
    error = kind([errors.BadLine(1, "x", "y")]) if kind is errors.BadFile else kind(*arguments)
    problem = to_problem(error)
    assert problem.error == kind.__name__
    assert problem.status in TITLES
    assert problem.status in STATUS_OF_ERROR.values()
    assert ("Retry-After" in problem.headers) is (problem.status == 503)


def test_a_defect_is_a_500_without_its_text(
    client: httpx.Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise KeyError("a private zorblax")

    monkeypatch.setattr(Memory, "recall", fail)
    answer = client.post("/v1/recall", json={"query": "x"})
    assert "zorblax" not in str(check_problem(answer, 500))
    assert "/v1/recall failed" in caplog.text


# Bounds


def test_a_body_beyond_the_limit_is_refused_before_it_is_read(tmp_path: Path) -> None:
    with run_server(tmp_path, options=ApiOptions(max_body=1_000)) as server:
        key = server.add_key("ana", user="ana")
        check_problem(server.client(key).post("/v1/remember", json={"text": "x" * 2_000}), 413)
        chunks = (b"x" * 300 for _ in range(10))
        check_problem(server.client(key).post("/v1/remember", content=chunks, headers=JSON), 413)
        address = urlsplit(server.listener.address)
        with socket.create_connection((address.hostname, address.port), timeout=60) as raw:
            head = f"POST /v1/remember HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\n"
            raw.sendall(f"{head}Content-Type: application/json\r\nContent-Length: 99999999\r\n\r\n".encode())
            assert raw.recv(100).startswith(b"HTTP/1.1 413"), "the answer came without the body"


def test_requests_beyond_the_rate_of_a_key_get_429_and_the_time_to_wait(server: RunningServer) -> None:
    slow = server.client(server.add_key("slow", user="ana", limits=KeyLimits(2, None)))
    answers = [slow.get("/v1/scope") for _ in range(2)]
    assert [one.status_code for one in answers] == [200, 200]
    # On a slow machine a few more come within the rate.
    refused = next(answer for _ in range(50) if (answer := slow.get("/v1/scope")).status_code != 200)
    check_problem(refused, 429)
    assert 1 <= int(refused.headers["retry-after"]) <= 2
    other = server.client(server.add_key("other", user="ana"))
    assert other.get("/v1/scope").status_code == 200, "each key has its own limit"


def test_items_and_bytes_of_a_day_are_limited(server: RunningServer) -> None:
    few = server.client(server.add_key("few", user="ana", limits=KeyLimits(None, None, items_per_day=3)))
    assert few.post("/v1/remember_many", json={"notes": ["a", "b"]}).status_code == 200
    check_problem(few.post("/v1/remember_many", json={"notes": ["c", "d"]}), 429)
    assert few.post("/v1/remember", json={"text": "c"}).status_code == 200
    assert few.post("/v1/recall", json={"query": "c"}).status_code == 200, "reading is not limited"
    small = server.client(server.add_key("small", user="ben", limits=KeyLimits(None, None, bytes_per_day=100)))
    assert small.post("/v1/remember", json={"text": "x" * 60}).status_code == 200
    check_problem(small.post("/v1/remember", json={"text": "y" * 60}), 429)
    assert len(small.get("/v1/items").json()["items"]) == 1


def test_requests_beyond_the_queue_are_refused_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    busy, go_on = threading.Semaphore(0), threading.Event()

    def wait(self: Memory, query: str, **_: object) -> None:
        busy.release()
        assert go_on.wait(180)

    with run_server(tmp_path, options=ApiOptions(threads=1, queue=1)) as server:
        client = server.client(server.add_key("ana", user="ana"))
        monkeypatch.setattr(Memory, "recall", wait)
        waiting = [
            threading.Thread(target=client.post, args=("/v1/recall",), kwargs={"json": {"query": "x"}})
            for _ in range(2)
        ]
        try:
            waiting[0].start()
            assert busy.acquire(timeout=120)
            waiting[1].start()
            while server.api.pool.running < 2:
                time.sleep(0.001)
            answer = client.get("/v1/scope")
            check_problem(answer, 503)
            assert answer.headers["retry-after"] == "1"
            assert client.get("/healthz").status_code == 200, "liveness does not need a thread"
        finally:
            go_on.set()
            for one in waiting:
                one.join(120)
        assert client.get("/v1/scope").status_code == 200


def test_a_key_has_a_limit_of_requests_at_a_time(server: RunningServer, monkeypatch: pytest.MonkeyPatch) -> None:
    busy, go_on = threading.Event(), threading.Event()

    def wait(self: Memory, query: str, **_: object) -> None:
        busy.set()
        assert go_on.wait(180)

    monkeypatch.setattr(Memory, "recall", wait)
    client = server.client(server.add_key("ana", user="ana", limits=KeyLimits(None, 1)))
    thread = threading.Thread(target=client.post, args=("/v1/recall",), kwargs={"json": {"query": "x"}})
    thread.start()
    try:
        assert busy.wait(120)
        check_problem(client.get("/v1/scope"), 429)
    finally:
        go_on.set()
        thread.join(120)
    assert client.get("/v1/scope").status_code == 200


# Views, export and load


def test_a_view_has_its_own_session_and_working_memory(server: RunningServer) -> None:
    key = server.add_key("ana", user="ana")
    first, second = server.client(key, Engrain_View="first"), server.client(key, Engrain_View="second")
    first.post("/v1/start_session", json={"id": "monday"})
    first.post("/v1/working/start", json={"work": "Book a flight."})
    assert first.get("/v1/current_session").json() == {"session": "monday"}
    assert second.get("/v1/current_session").json() == {"session": None}
    assert second.get("/v1/working/current_work").json() == {"work": ""}
    assert first.get("/v1/working/current_work").json() == {"work": "Book a flight."}
    check_problem(server.client(key, Engrain_View="%").get("/v1/current_session"), 400)


def test_an_export_can_be_loaded_by_another_server(server: RunningServer, tmp_path_factory: Any) -> None:
    ana = server.client(server.add_key("ana", user="ana"))
    ana.post("/v1/remember", json={"text": "Ana likes tea."})
    exported = ana.get("/v1/export")
    assert exported.headers["content-type"] == "application/x-ndjson"
    assert "Ana likes tea." in ana.get("/v1/export?format=markdown").text
    kind = {"Content-Type": "application/x-ndjson"}
    with run_server(tmp_path_factory.mktemp("other")) as other:
        there = other.client(other.add_key("ana", user="ana"))
        dry = there.post("/v1/load?dry_run=true", content=exported.content, headers=kind)
        assert dry.json()["written"] is False
        assert there.get("/v1/items").json() == {"items": []}
        assert there.post("/v1/load", content=exported.content, headers=kind).json()["added"] == 1
        assert there.get("/v1/items").json()["items"][0]["text"] == "Ana likes tea."
        broken = check_problem(there.post("/v1/load", content=b'{"text": "a"}\n{"text": ""}\n', headers=kind), 422)
        assert broken["error"] == "BadFile"
        assert broken["lines"]
        check_problem(there.post("/v1/load", content=b"x", headers={"Content-Type": "text/plain"}), 415)
    assert not list(Path(tempfile.gettempdir()).glob("engrain-export-*/export"))


def test_an_id_of_another_verb_and_odd_values_are_refused(server: RunningServer) -> None:
    client = server.client(server.add_key("ana", user="ana"))
    key = {"Idempotency-Key": "r-1"}
    assert client.post("/v1/remember", json={"text": "Tea."}, headers=key).status_code == 200
    assert client.post("/v1/episodic/record_tool_call", json={"tool": "0"}, headers=key).status_code == 409
    said = {"role": "user", "text": "Hello."}
    assert client.post("/v1/add_message", json=said, headers=key).status_code == 409
    assert client.get("/v1/sessions").json() == {"sessions": []}
    for value in (-5.9e307, {"<": 1e30}, {"in": [1e19]}):
        assert client.post("/v1/list", json={"where": {"place": value}}).status_code == 422
    for reads in ("", "agent=a,", "agent=a&agent=b", "agent", "agent=%FF"):
        found = client.post("/v1/recall", json={"query": "x"}, headers={"Engrain-Reads": reads})
        assert found.status_code == 400, reads


def test_a_header_names_the_memory_without_an_owner(server: RunningServer) -> None:
    server.store.memory().remember("The office is in Lima.")
    whole = server.client(server.add_key("whole", chooses=("tenant", "agent", "user")), Engrain_User="ana")
    asked = {"query": "Where is the office?"}
    assert whole.post("/v1/recall", json=asked).json()["hits"] == []
    found = whole.post("/v1/recall", json=asked, headers={"Engrain-Reads": "none, agent=team"}).json()["hits"]
    assert [one["item"]["text"] for one in found] == ["The office is in Lima."]


def test_white_space_around_a_header_is_no_part_of_it(server: RunningServer) -> None:
    key = server.add_key("backend", chooses=("user",))
    address = urlsplit(server.listener.address)
    connection = HTTPConnection(str(address.hostname), address.port, timeout=120)
    connection.request("GET", "/v1/scope", headers={"Authorization": f"Bearer {key}", "Engrain-User": "ana \t"})
    assert json.loads(connection.getresponse().read())["user"] == "ana"
    connection.close()
