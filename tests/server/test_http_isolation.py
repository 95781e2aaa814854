"""Two tenants, every route: no key reads, changes or removes anything of the other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from server_kit import RunningServer, run_server

from engrain import Memory
from engrain.core.http_routes import RIGHTS, ROUTES, Route

# A word that only one tenant has: it must be in no answer to the other.
WORDS = {"acme": "zorblax", "umbra": "quivern"}

# Arguments with which a verb succeeds, or would find the other's data. IDs are those of the other tenant.
BODIES: dict[str, dict[str, Any]] = {
    "remember": {"text": "A new fact."},
    "remember_many": {"notes": ["Two new facts."]},
    "recall": {"query": "What is the secret that I like and that broke?", "n": 100, "min_relevance": 0},
    "prompt": {"request": "What is the secret that I like and that broke?"},
    "list": {"history": True, "limit": 1000},
    "update": {"importance": 0.9},
    "correct": {"text": "Overwritten."},
    "forget": {"what": {"text": {"contains": "r"}}},
    "relations.add": {"subject": "A", "relation": "knows", "object": "B"},
    "semantic.learn": {"content": "Learnt."},
    "add_message": {"role": "user", "text": "Hello.", "session": "shared"},
    "add_messages": {"messages": [{"role": "user", "text": "Hello."}], "session": "shared"},
    "conversation.add": {"role": "user", "text": "Hello."},
    "conversation.add_many": {"messages": [{"role": "user", "content": "Hello."}]},
    "conversation.search": {"query": "What is the secret that I like and that broke?"},
    "working.start": {"work": "Work."},
    "working.step": {"thought": "Think.", "action": "act", "result": 1},
    "working.finish": {"success": True},
    "working.set_task": {"task": "Work."},
    "working.set_goal": {"goal": "Goal."},
    "working.push_subgoal": {"goal": "Goal."},
    "working.add_thought": {"thought": "Think."},
    "working.add": {"item": "Item."},
    "working.resume_session": {"session": "shared"},
    "working.add_result": {"value": 1},
    "working.set_variable": {"value": 1},
    "episodic.record": {"what": "It happened."},
    "episodic.record_tool_call": {"tool": "t"},
    "episodic.record_decision": {"text": "Decided."},
    "episodic.record_error": {"error": "Failed."},
    "episodic.record_resolution": {"error": "{id}", "text": "Solved."},
    "episodic.remove": {"ids": ["{id}"]},
    "semantic.all_valid": {"ids": ["{id}"]},
    "procedural.learn": {"name": "deploy", "steps": ["one"]},
    "procedural.find": {"goal": "deploy"},
    "procedural.used": {"id": "{id}", "task": "t", "success": False},
    "tasks.resolve": {"step": "s", "outcome": "done"},
    "tasks.signal": {"event": "e"},
    "tasks.checkpoint": {"state": {"own": True}},
    "erase": {"dry_run": False},
    "store.undo": {"source": "page"},
}


def fill(memory: Memory, word: str) -> dict[str, str]:
    """Keep something of every kind, and return the values that name it in paths."""
    id = memory.remember(f"The secret is {word}.", slot="user.secret", source="page")
    memory.relations.add("Ana", "knows", word)
    memory.session("shared").add_message("user", f"Remember that I like {word}.")
    memory.sessions.end("shared")
    memory.episodic.record_error(f"It broke: {word}.", session="shared")
    memory.procedural.learn("deploy", [f"use {word}"])
    memory.tasks.checkpoint("job", {"word": word})
    memory.working.start(f"Work on {word}.")
    return {"id": id, "name": "user.secret", "session": "shared", "entity": "Ana", "task": "job", "key": "k"}


def request(client: httpx.Client, route: Route, values: dict[str, str]) -> httpx.Response:
    path = route.path
    named = {**values, "name": "deploy"} if "procedures" in path else values
    for name in route.path_names:
        path = path.replace(f"{{{name}}}", named[name])
    if route.verb == "load":
        line = json.dumps({"text": "Loaded."}) + "\n"
        return client.post(path, content=line, headers={"Content-Type": "application/x-ndjson"})
    body = json.loads(json.dumps(BODIES.get(route.verb, {})).replace("{id}", values["id"]))
    return client.request(route.method, path, json=None if route.in_query else body)


def snapshot(memory: Memory) -> Any:
    return (
        [(item.id, item.text, item.importance, item.valid_to) for item in memory.list(history=True, limit=1000)],
        memory.sessions.messages("shared", 100),
        memory.tasks.load_checkpoint("job"),
        memory.procedural.versions("deploy"),
        [event.text for event in memory.episodic.recent(100)],
    )


@pytest.fixture
def tenants(server: RunningServer) -> dict[str, tuple[httpx.Client, dict[str, str]]]:
    found = {}
    for tenant, word in WORDS.items():
        values = fill(server.store.memory(tenant=tenant, agent="bot", user="ana"), word)
        key = server.add_key(tenant, tenant=tenant, agent="bot", user="ana")
        found[tenant] = (server.client(key), values)
    return found


def test_no_route_shows_or_touches_the_other_tenants_data(
    server: RunningServer, tenants: dict[str, tuple[httpx.Client, dict[str, str]]]
) -> None:
    other = server.store.memory(tenant="umbra", agent="bot", user="ana")
    before = snapshot(other)
    client, _ = tenants["acme"]
    _, foreign = tenants["umbra"]
    succeeded = 0
    # The erasure of the caller's own user comes last: everything else still has its data.
    for route in sorted(ROUTES, key=lambda one: one.verb in ("erase", "forget")):
        if route.verb == "server.events":
            continue
        answer = request(client, route, foreign)
        assert answer.status_code < 500, (route.path, answer.text)
        assert WORDS["umbra"] not in answer.text, route.path
        assert "umbra" not in answer.text, route.path
        assert (answer.status_code == 403) is route.whole_store, (route.path, answer.text)
        succeeded += answer.is_success
    assert succeeded > 70, "most routes must have worked, or the test shows nothing"
    assert snapshot(other) == before


def test_the_same_requests_do_find_the_callers_own_data(
    tenants: dict[str, tuple[httpx.Client, dict[str, str]]],
) -> None:
    """The other test could pass with a server that finds nothing at all."""
    client, own = tenants["umbra"]
    reading = [one for one in ROUTES if one.right == "read" and one.verb != "server.events"]
    found = {one.verb for one in reading if WORDS["umbra"] in request(client, one, own).text}
    assert found >= {
        "recall", "prompt", "list", "get", "explain", "slots.get", "slots.list", "slots.history", "relations.list",
        "relations.about", "sessions.list", "sessions.messages", "conversation.window", "conversation.search",
        "conversation.export", "episodic.recent", "episodic.important", "procedural.get", "procedural.find",
        "procedural.versions", "procedural.best", "tasks.load_checkpoint", "export",
    }  # fmt: skip


def test_a_bound_key_cannot_name_another_scope(server: RunningServer) -> None:
    key = server.add_key("bound", tenant="acme", user="ana")
    for header, value in (("Engrain-User", "ben"), ("Engrain-Tenant", "umbra"), ("Engrain-Agent", "bot")):
        answer = server.client(key).get("/v1/scope", headers={header: value})
        assert answer.status_code == 403
    same = server.client(key).get("/v1/scope", headers={"Engrain-User": "ana"})
    assert same.status_code == 200


def test_a_backend_key_names_users_of_its_tenant_only(server: RunningServer) -> None:
    key = server.add_key("backend", tenant="acme", chooses=("user",))
    server.store.memory(tenant="acme", user="ana").remember("Ana is here.")
    server.store.memory(tenant="acme", user="josé").remember("José is here.")
    server.store.memory(tenant="umbra", user="ana").remember("Somebody else is here.")
    client = server.client(key)
    scope = client.get("/v1/scope", headers={"Engrain-User": "jos%C3%A9"}).json()
    assert (scope["tenant"], scope["user"]) == ("acme", "josé")
    texts = [one["text"] for one in client.get("/v1/items", headers={"Engrain-User": "ana"}).json()["items"]]
    assert texts == ["Ana is here."]
    listed = client.get("/v1/memories").json()["memories"]
    assert {(one["tenant"], one["user"]) for one in listed} == {("acme", "ana"), ("acme", "josé")}
    assert client.get("/v1/items", headers={"Engrain-Tenant": "umbra"}).status_code == 403
    assert client.get("/v1/store/memories").status_code == 403


def test_a_key_has_only_its_rights(server: RunningServer) -> None:
    keys = {right: server.add_key(right, rights=(right,), user="ana") for right in RIGHTS}
    values = {"id": "x", "name": "x", "session": "x", "entity": "x", "task": "x", "key": "x"}
    for right, key in keys.items():
        client = server.client(key)
        for route in ROUTES:
            if route.verb == "server.events":
                continue
            refused = request(client, route, values).status_code == 403
            assert refused is (route.right != right or route.whole_store), (right, route.path)


@pytest.mark.parametrize("path", ["/v1/holds", "/v1/audit"])
def test_a_memory_without_a_user_does_not_answer_for_all_users(server: RunningServer, path: str) -> None:
    server.store.hold("ana", tenant="umbra", reason="case-7")
    key = server.add_key("agent", tenant="acme", agent="bot")
    answer = server.client(key).get(path)
    assert answer.status_code == 409
    assert "case-7" not in answer.text


def test_pruning_tasks_of_all_memories_needs_a_key_of_the_whole_store(server: RunningServer) -> None:
    server.store.memory(tenant="umbra", user="ana").tasks.checkpoint("job", {"a": 1}, done=True)
    bound = server.client(server.add_key("bound", tenant="acme", user="ana"))
    assert bound.post("/v1/store/prune_tasks", json={"older_than": 0}).status_code == 403
    whole = server.client(server.add_key("whole", chooses=("tenant", "agent", "user")))
    assert whole.post("/v1/store/prune_tasks", json={"older_than": 0}).json() == {"removed": 1}


def test_an_erasure_clears_the_working_memory_that_the_server_holds(tmp_path: Path) -> None:
    with run_server(tmp_path) as server:
        client = server.client(server.add_key("ana", user="ana"))
        client.post("/v1/remember", json={"text": "Something."})
        client.post("/v1/working/add", json={"item": "A private zorblax."})
        assert "zorblax" in client.get("/v1/working").text
        server.store.erase(user="ana")
        assert "zorblax" not in client.get("/v1/working").text
