"""Hand an event of a coding agent to the resident process: standard library alone, silent, always exit 0.

Run by a client as: python -I -S hook.py FOLDER CLIENT [EVENT], with the event as JSON on stdin. The answer of the
resident process goes to stdout. When nothing answers, the event goes to the spool, and the client never waits long.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import sys
import time
from os import _exit as exit_at_once

SOCKET_FILE, OFF_FILE, BREAKER_FILE = "engrain.sock", "off", "breaker.json"
ROUTE = "/v1/connect/events"
MAX_EVENT_BYTES, MAX_BREAKER_BYTES = 4 << 20, 1 << 10
# Nothing takes longer than both together, whatever happens: the wait for an answer, and handing over to the spool.
LAST_RESORT_SECONDS, HAND_OVER_SECONDS = 0.7, 0.3
# A first failure costs one wait, a second one a short wait, and then nobody waits for a while.
WAIT_SECONDS = (0.6, 0.25)
PAUSE_SECONDS = 30.0
PATIENCE_VARIABLE = "ENGRAIN_HOOK_PATIENCE"  # a factor for slow machines
RETRY_SECONDS = 0.02

Answer = dict[str, object]


def main(folder: str, client: str, event: str = "") -> None:
    raw = sys.stdin.buffer.read(MAX_EVENT_BYTES + 1)
    if os.path.exists(os.path.join(folder, OFF_FILE)) or len(raw) > MAX_EVENT_BYTES:
        return
    payload = json.loads(raw or b"{}")
    if not isinstance(payload, dict):
        return
    message = {
        "client": client,
        "event": event or payload.get("hook_event_name") or "",
        "payload": payload,
        "at": time.time(),
        "build": read_build(),
    }
    body = json.dumps(message).encode()
    try:
        answer = deliver(folder, body)
        stop_waiting()
    except TimeUp:
        answer = None
    if answer is None:
        signal.signal(signal.SIGALRM, leave)
        signal.setitimer(signal.ITIMER_REAL, HAND_OVER_SECONDS * read_patience())
        run_detached("engrain.connect.spool", folder, body)
    elif answer.get("output"):
        sys.stdout.write(json.dumps(answer["output"]))
        sys.stdout.flush()


def read_patience() -> float:
    try:
        return float(os.environ.get(PATIENCE_VARIABLE, "1"))
    except ValueError:
        return 1.0


def read_build() -> str:
    """The version of the installed files: a resident process of another version ends after its answer."""
    about = os.stat(__file__)
    return f"{about.st_mtime_ns}-{about.st_size}"


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
                run_detached("engrain.connect.service", folder)
                started = True
            time.sleep(RETRY_SECONDS)
        except (OSError, ValueError):
            return None
    return None


def send(path: str, body: bytes, end: float) -> Answer:
    """Post over the socket. ValueError for an answer that is not one of ours."""
    head = f"POST {ROUTE} HTTP/1.1\r\nHost: engrain\r\nContent-Type: application/json\r\n"
    head += f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(max(0.01, end - time.monotonic()))
        connection.connect(path)
        connection.sendall(head.encode() + body)
        parts = []
        while True:
            connection.settimeout(max(0.01, end - time.monotonic()))
            part = connection.recv(1 << 16)
            if not part:
                break
            parts.append(part)
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


def run_detached(module: str, folder: str, body: bytes | None = None) -> None:
    """Start a process that outlives this one. Its input is in memory: nothing unredacted goes to a disk."""
    nothing = os.open(os.devnull, os.O_RDWR)
    source = nothing
    if body is not None:
        source = os.memfd_create("engrain-event")
        os.write(source, body)
        os.lseek(source, 0, os.SEEK_SET)
    files = [(os.POSIX_SPAWN_DUP2, source, 0), (os.POSIX_SPAWN_DUP2, nothing, 1), (os.POSIX_SPAWN_DUP2, nothing, 2)]
    for number in map(int, os.listdir("/proc/self/fd")):
        if number > 2:
            keep_to_ourselves(number)
    # Not by `subprocess`, whose import takes as long as everything else here.
    command = [sys.executable, "-P", "-m", module, folder]
    os.posix_spawn(command[0], command, os.environ, file_actions=files, setsid=True)


def keep_to_ourselves(descriptor: int) -> None:
    """Do not pass on what a client left open: it would wait for our process to close it."""
    try:
        os.set_inheritable(descriptor, False)
    except OSError:
        return  # closed already


_alarm = {"raises": True}


class TimeUp(BaseException):
    """The client must not wait any longer."""


def give_up(*_: object) -> None:
    if _alarm["raises"]:
        raise TimeUp


def stop_waiting() -> None:
    """An alarm that comes between the wait and the spool must not stop the event from going there."""
    _alarm["raises"] = False


def leave(*_: object) -> None:
    exit_at_once(0)


if __name__ == "__main__":
    signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, LAST_RESORT_SECONDS * read_patience())
    try:
        main(*sys.argv[1:4])
    finally:
        leave()  # at once, and with 0: no error of ours may reach the session
