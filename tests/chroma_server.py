"""Start a real Chroma server for tests: on loopback, in a temporary folder, gone with the process that started it."""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from urllib.request import urlopen

from forked import die_with_parent
from free_ports import free_port

_START_SECONDS = 60.0
_TRIES = 5  # a port that somebody else has for a moment is waited for


@dataclass
class ChromaProcess:
    folder: Path
    port: int
    _process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def url(self) -> str:
        return f"chroma://127.0.0.1:{self.port}"

    def start(self) -> None:
        for _ in range(_TRIES):
            self._process = self._launched()
            if self._answers():
                return
            self._process.kill()
            self._process.wait()
            time.sleep(1)
        raise RuntimeError(f"Chroma did not start:\n{(self.folder / 'log').read_text()[-2_000:]}")

    def _launched(self) -> subprocess.Popen[bytes]:
        program = Path(sys.executable).with_name("chroma")
        where = ("--path", str(self.folder / "data"), "--host", "127.0.0.1", "--port", str(self.port))
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(
                [program, "run", *where], stdin=subprocess.DEVNULL, stdout=log, stderr=log, preexec_fn=die_with_parent
            )

    def kill(self) -> None:
        """As by the power button."""
        if self._process and self._process.poll() is None:
            self._process.kill()
            self._process.wait(120)

    def pause(self) -> None:
        """It keeps its connections and says nothing."""
        assert self._process
        self._process.send_signal(signal.SIGSTOP)
        os.waitpid(self._process.pid, os.WUNTRACED)  # until every thread has stopped

    def resume(self) -> None:
        assert self._process
        self._process.send_signal(signal.SIGCONT)

    def _answers(self) -> bool:
        ends = time.monotonic() + _START_SECONDS
        while self._process and self._process.poll() is None and time.monotonic() < ends:
            try:
                with urlopen(f"http://127.0.0.1:{self.port}/api/v2/heartbeat", timeout=10):
                    return True
            except OSError:
                time.sleep(0.1)
        return False


def new_server() -> ChromaProcess:
    """A server of one's own, started."""
    folder = Path(tempfile.mkdtemp(prefix="engrain-chroma-"))
    made = ChromaProcess(folder, free_port())
    made.start()
    atexit.register(_remove, made)
    return made


@cache
def shared_server() -> ChromaProcess:
    """One for all tests of this process."""
    return new_server()


def _remove(server: ChromaProcess) -> None:
    server.kill()
    shutil.rmtree(server.folder, ignore_errors=True)
