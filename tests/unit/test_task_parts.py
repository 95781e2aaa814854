"""The parts of durable tasks: envelopes, fingerprints, pauses, workers, the steady clock, flows."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engrain.core.errors import InvalidInput, OutcomeUnknown, StoreCorrupt, TooLarge
from engrain.core.rules.lease_clock import Moment, add_time, has_passed, is_lease_over
from engrain.core.validation import MAX_JSON_DEPTH
from engrain.stores.sqlite.steady_clock import find_steady_clock
from engrain.tasks.driver import Flow, Sleep, StoreCall, UserCall, run_flow, run_flow_async
from engrain.tasks.lease import create_worker_name, is_worker_dead
from engrain.tasks.serialization import decode, encode, fingerprint_arguments
from engrain.tasks.steps import Retry

plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8")),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner, max_size=4)
    ),
)


@given(plain)
def test_plain_json_comes_back_as_it_was(value: Any) -> None:
    text = encode(value, "value")
    assert decode(text) == value
    assert json.loads(text)["v"] == 1


@given(st.dictionaries(st.text(st.characters(codec="utf-8")), st.integers(), min_size=2))
def test_a_fingerprint_does_not_depend_on_the_order_of_keys(value: dict[str, int]) -> None:
    turned = dict(reversed(list(value.items())))
    assert fingerprint_arguments((value, 1), "x") == fingerprint_arguments((turned, 1), "x")
    assert fingerprint_arguments((value, 1), "x") != fingerprint_arguments((value, 2), "x")


def test_a_fingerprint_tells_arguments_apart() -> None:
    seen = {
        fingerprint_arguments(args, "x")
        for args in [(), (None,), ("",), ([],), ({},), (0,), (False,), ("0",), (0, 0), ([0, 0],)]
    }
    assert len(seen) == 10


def test_what_is_nested_too_deep_is_refused() -> None:
    value: Any = 1
    for _ in range(MAX_JSON_DEPTH + 2):
        value = [value]
    with pytest.raises(TooLarge, match="deeper"):
        encode(value, "value")
    round_: list[Any] = []
    round_.append(round_)
    with pytest.raises(InvalidInput, match=r"^value\['a'\]\[0\] contains itself"):
        encode({"a": round_}, "value")
    with pytest.raises(TooLarge, match="digits"):
        encode(10**5000, "value")


def test_an_envelope_of_another_version_is_not_guessed_at() -> None:
    for text in ('{"v":2,"value":1}', "1", '"x"', "{", "null"):
        with pytest.raises(StoreCorrupt):
            decode(text)
    assert decode(None) is None


def test_pauses_grow_to_a_limit() -> None:
    retry = Retry(5, first=1, factor=2, most=10)
    for failures, whole in ((1, 1), (2, 2), (3, 4), (5, 10), (900, 10)):
        assert all(whole / 2 <= retry.pause(failures) <= whole for _ in range(20))
    for wrong in ({"times": -1}, {"times": 1.5}, {"times": True}, {"factor": 0.5}, {"first": -1}):
        with pytest.raises(InvalidInput):
            Retry(**wrong)  # type: ignore[arg-type]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux tells when a process began")
def test_a_worker_is_dead_once_its_process_is_gone() -> None:
    assert not is_worker_dead(create_worker_name())
    code = "from engrain.tasks.lease import create_worker_name; print(create_worker_name(), flush=True); input()"
    child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdout
    name = child.stdout.readline().strip()
    assert not is_worker_dead(name)
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # dead, and not yet buried
    assert is_worker_dead(name)
    child.communicate()
    assert is_worker_dead(name)


def test_a_worker_elsewhere_may_be_alive() -> None:
    host, space, pid, began, chance = create_worker_name().split("/")
    assert not is_worker_dead(f"elsewhere/{space}/999999999/{began}/{chance}")
    assert not is_worker_dead(f"{host}/other/999999999/{began}/{chance}")
    assert not is_worker_dead(f"{host}//999999999//{chance}")
    for odd in ("", "worker one", "a/b", f"{host}/{space}/x/1/2"):
        assert not is_worker_dead(odd)
    if space:
        assert is_worker_dead(f"{host}/{space}/{pid}/1/{chance}")  # the same number, another process


@pytest.mark.parametrize(("now", "then"), [("boot-a:1000000", "boot-a:3000000"), (1_000_000, 3_000_000)])
def test_a_moment_of_the_lease_clock_passes_in_time(now: Moment, then: Moment) -> None:
    assert add_time(now, timedelta(seconds=2)) == then
    assert has_passed(then, now) is False
    assert has_passed(then, then) is True
    assert has_passed(then, then, timedelta(seconds=1)) is False
    assert (is_lease_over(9, then, 9, now), is_lease_over(9, then, 8, then)) == (False, True)
    assert add_time(None, timedelta()) is has_passed(None, now) is has_passed(then, None) is None
    assert (is_lease_over(9, None, 8, now), is_lease_over(9, then, 9, None)) == (False, True)


def test_the_steady_clock_speaks_of_its_own_boot_only() -> None:
    assert has_passed("boot-a:1", "boot-b:2") is None
    assert is_lease_over(9, "boot-a:5", 1, "boot-b:2")
    if clock := find_steady_clock():
        assert has_passed(clock(), clock()) is True


def flow(failing: bool) -> Flow[list[Any]]:
    seen = [(yield StoreCall(lambda: "asked")), (yield UserCall(lambda a, b: a + b, (1,), {"b": 2}))]
    yield Sleep(0)
    try:
        yield UserCall(_fails)
    except ZeroDivisionError:
        seen.append("caught")
    if failing:
        yield StoreCall(_fails)
    return seen


def _fails() -> None:
    raise ZeroDivisionError


def test_a_flow_runs_alike_in_both_colours() -> None:
    async def hop(call: Any) -> Any:
        return await asyncio.to_thread(call)

    expected = ["asked", 3, "caught"]
    assert run_flow(flow(False)) == asyncio.run(run_flow_async(flow(False), hop)) == expected
    with pytest.raises(ZeroDivisionError):
        run_flow(flow(True))
    with pytest.raises(ZeroDivisionError):
        asyncio.run(run_flow_async(flow(True), hop))


def test_an_interrupt_that_broke_off_a_write_reaches_the_flow_of_both_drivers() -> None:
    def interrupted() -> None:
        raise OutcomeUnknown("broken off", interrupt=KeyboardInterrupt())

    def flow() -> Flow[str]:
        try:
            yield UserCall(interrupted)
        except Exception:  # noqa: BLE001  # an ordinary handler must not get it
            return "swallowed"
        return "nothing raised"

    async def on_thread(call: Any) -> Any:
        return await asyncio.to_thread(call)

    with pytest.raises(KeyboardInterrupt):
        run_flow(flow())
    with pytest.raises(KeyboardInterrupt):
        asyncio.run(run_flow_async(flow(), on_thread))
