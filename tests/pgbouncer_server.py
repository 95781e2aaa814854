"""Start a PgBouncer in front of the test's Postgres: each transaction goes to another session."""

from __future__ import annotations

import atexit
import os
import shutil
import socket
import subprocess
import tempfile
import time
from functools import cache
from pathlib import Path

from free_ports import free_port
from servers import MEMBER, _die_with_parent, _someone, postgres

PGBOUNCER = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
_START_SECONDS = 60.0


@cache
def pgbouncer() -> int:
    """Its port."""
    folder, port = Path(tempfile.mkdtemp(prefix="engrain-pgb-", dir="/tmp")), free_port()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    os.chmod(folder, 0o755)
    (folder / "users").write_text(f'"{MEMBER}" ""\n"postgres" ""\n')
    server = f"host=127.0.0.1 port={postgres().port} dbname=postgres"
    settings = {
        "listen_addr": "127.0.0.1",
        "listen_port": port,
        "unix_socket_dir": "",
        "auth_type": "trust",
        "auth_file": folder / "users",
        "pool_mode": "transaction",
        "default_pool_size": 6,
        "max_client_conn": 200,
        # The last to come back is not the next to go: whatever is left in a session meets somebody else.
        "server_round_robin": 1,
    }
    written = "".join(f"{name} = {value}\n" for name, value in settings.items())
    (folder / "ini").write_text(f"[databases]\npostgres = {server}\n[pgbouncer]\n{written}")
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(
        [str(PGBOUNCER), folder / "ini"], stdout=quiet, stderr=quiet, preexec_fn=_die_with_parent, **_someone()
    )
    atexit.register(process.terminate)
    deadline = time.monotonic() + _START_SECONDS
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return port
        except OSError:
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError("PgBouncer did not start.") from None
            time.sleep(0.05)
