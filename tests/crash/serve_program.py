"""Serve a store on a unix socket until killed: `python serve_program.py STORE SOCKET`."""

from __future__ import annotations

import sys
from pathlib import Path

from engrain_conformance.embedder import HashEmbedder

from engrain import Store
from engrain.server.access import Access, OpenAccess
from engrain.server.app import HttpApi
from engrain.server.serve import ApiServer, listen_unix


def main(path: str, socket: str) -> None:
    with Store(path, embedder=HashEmbedder(), background=False) as store:
        ApiServer(HttpApi(store, Access(None, OpenAccess()))).serve_until_stopped(listen_unix(Path(socket)))


if __name__ == "__main__":
    main(*sys.argv[1:])
