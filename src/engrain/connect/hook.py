"""Hand an event of a coding agent to the resident process: standard library alone, silent, always exit 0.

Run by a client as: python -I -S hook.py FOLDER CLIENT [EVENT], with the event as JSON on stdin. A child of this process
hands the event over, or puts it into the spool, and nobody ends it before that. The client waits for its parent alone,
which prints the answer of the resident process, or nothing when the time is up.
"""

from __future__ import annotations

import _socket  # `socket` itself takes 4 ms to import
import json
import os
import select
import signal
import stat
import sys
import time
from os import _exit as exit_at_once

SOCKET_FILE, OFF_FILE, BREAKER_FILE = "engrain.sock", "off", "breaker.json"
ROUTE = "/v1/connect/events"
MAX_EVENT_BYTES, MAX_BREAKER_BYTES = 4 << 20, 1 << 10
MAX_DESCRIPTORS = 4_096
DEADLINE_SECONDS = 0.9  # for the client
INPUT_SECONDS = 60  # for the event: a client that never closes its pipe must not leave a process behind
# A first failure costs one wait, a second one a short wait, and then nobody waits for a while.
WAIT_SECONDS = (0.6, 0.25)
PAUSE_SECONDS = 30.0
PATIENCE_VARIABLE = "ENGRAIN_HOOK_PATIENCE"  # a factor for slow machines
RETRY_SECONDS = 0.02
COPILOT_VARIABLE = "COPILOT_CLI"

Answer = dict[str, object]


def main(folder: str, client: str, event: str = "") -> None:
    end = time.monotonic() + DEADLINE_SECONDS * read_patience()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        hand_over(folder, client, event, leave_client(writing))
    else:
        os.close(writing)
        print_answer(reading, child, end)


def leave_client(writing: int) -> int:
    """Go on alone. Nothing that the client opened stays open but its event, or it would wait. Return the pipe."""
    os.setsid()
    pipe = os.dup2(writing, 3)
    os.closerange(4, MAX_DESCRIPTORS)
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 1)
    os.dup2(nothing, 2)
    return pipe


def print_answer(reading: int, child: int, end: float) -> None:
    """Print what the child was told. It closes the pipe without a word when the event goes to the spool."""
    answer = b""
    while select.select([reading], [], [], max(0.0, end - time.monotonic()))[0]:
        part = os.read(reading, 1 << 16)
        if not part:
            break
        answer += part
    else:
        return
    if answer not in (b"", b"{}"):
        sys.stdout.buffer.write(answer)
        sys.stdout.buffer.flush()
    while answer and time.monotonic() < end and os.waitpid(child, os.WNOHANG)[0] == 0:
        time.sleep(0.001)  # it ends now, and must not wait for a parent that never asks


def hand_over(folder: str, client: str, event: str, pipe: int) -> None:
    """Hand the event over and pass the answer on, or put it into the spool."""
    message = {"client": client, "event": event, "at": time.time()}
    signal.alarm(INPUT_SECONDS)
    raw = sys.stdin.buffer.read(MAX_EVENT_BYTES + 1)
    signal.alarm(0)
    is_off = os.path.exists(os.path.join(folder, OFF_FILE)) or is_run_by_other(client)
    payload = None if is_off or len(raw) > MAX_EVENT_BYTES else json.loads(raw or b"{}")
    answer: Answer | None = {}
    if isinstance(payload, dict):
        message |= {"event": event or payload.get("hook_event_name") or "", "payload": payload}
        body = json.dumps(message).encode()
        answer = deliver(folder, body)
    if answer is None:
        os.close(pipe)
        run("engrain.connect.spool", folder, body)
    else:
        write_all(pipe, json.dumps(answer.get("output") or {}).encode())


def is_run_by_other(client: str) -> bool:
    """True if Copilot runs the hook of another client, which it finds in a repository: its own tells the same."""
    return client in ("claude", "vscode") and COPILOT_VARIABLE in os.environ


def write_all(pipe: int, answer: bytes) -> None:
    try:
        while answer:
            answer = answer[os.write(pipe, answer) :]
    except BrokenPipeError:
        return  # the client has gone on


def read_patience() -> float:
    try:
        return float(os.environ.get(PATIENCE_VARIABLE, "1"))
    except ValueError:
        return 1.0


def deliver(folder: str, body: bytes) -> Answer | None:
    """Return the answer of the resident process; None if there is none in time."""
    breaker = os.path.join(folder, BREAKER_FILE)
    failures, until = read_breaker(breaker)
    if failures >= len(WAIT_SECONDS):
        if time.time() < until:
            return None
        failures = len(WAIT_SECONDS) - 1
    end = time.monotonic() + WAIT_SECONDS[failures] * read_patience()
    answer = ask(folder, body, end)
    if answer is None:
        write_breaker(breaker, failures + 1)
    elif failures:
        remove_breaker(breaker)
    return answer


def ask(folder: str, body: bytes, end: float) -> Answer | None:
    started = False
    while time.monotonic() < end:
        try:
            return send(os.path.join(folder, SOCKET_FILE), body, end)
        except (FileNotFoundError, ConnectionRefusedError):
            if not started:
                run("engrain.connect.event_service", folder)
                started = True
            time.sleep(RETRY_SECONDS)
        except (OSError, ValueError):
            return None
    return None


def send(path: str, body: bytes, end: float) -> Answer:
    """Post over the socket. ValueError for an answer that is not one of ours."""
    head = f"POST {ROUTE} HTTP/1.1\r\nHost: engrain\r\nContent-Type: application/json\r\n"
    head += f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        connection.settimeout(max(0.01, end - time.monotonic()))
        connection.connect(path)
        connection.sendall(head.encode() + body)
        parts: list[bytes] = []
        while not parts or parts[-1]:
            connection.settimeout(max(0.01, end - time.monotonic()))
            parts.append(connection.recv(1 << 16))
    finally:
        connection.close()
    status, _, rest = b"".join(parts).partition(b"\r\n")
    if b" 404 " in status:
        raise FileNotFoundError(path)  # a process of this store that serves no hooks: ours replaces it
    if b" 200 " not in status:
        raise ValueError(status)
    found: Answer = json.loads(rest.partition(b"\r\n\r\n")[2])
    return found


def read_breaker(path: str) -> tuple[int, float]:
    try:
        found = json.loads(read_small(path))
        # A time beyond any pause is of a clock that was set back, or of somebody else: it would pause for ever.
        until = float(found["until"])
        return max(0, int(found["failures"])), until if until <= time.time() + PAUSE_SECONDS else 0.0
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return 0, 0.0


def read_small(path: str) -> bytes:
    """Read a small plain file. OSError for anything else: opening a pipe would wait for its other end."""
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise OSError(path)
        return os.read(file, MAX_BREAKER_BYTES)
    finally:
        os.close(file)


def write_breaker(path: str, failures: int) -> None:
    body = json.dumps({"failures": failures, "until": time.time() + PAUSE_SECONDS}).encode()
    try:
        file = os.open(f"{path}.{os.getpid()}", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        os.write(file, body)
        os.close(file)
        os.replace(f"{path}.{os.getpid()}", path)
    except OSError:
        return  # something else stands there: the next event waits as this one did


def remove_breaker(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        return  # another event has removed it


def run(module: str, folder: str, body: bytes | None = None) -> None:
    """Run a module of engrain: with an input to its end, else as a process of its own."""
    # It takes as long to import as everything else here, and is needed only when nothing answers.
    from subprocess import DEVNULL, PIPE, Popen

    command = [sys.executable, "-P", "-m", module, folder]
    source = DEVNULL if body is None else PIPE
    process = Popen(command, stdin=source, stdout=DEVNULL, stderr=DEVNULL, start_new_session=True)
    if body is not None:
        process.communicate(body)  # in memory: nothing unredacted goes to a disk


if __name__ == "__main__":
    try:
        main(*sys.argv[1:4])
    finally:
        exit_at_once(0)  # with 0: no error of ours may reach the session
