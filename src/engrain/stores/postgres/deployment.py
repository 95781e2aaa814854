"""Tell how the server is deployed: what a commit survives, and whether others can listen."""

from __future__ import annotations

from collections.abc import Iterator

from engrain.core.identity import Scope
from engrain.core.model.queries import Finding
from engrain.ports.storage import check_owners
from engrain.stores.postgres.near import WIDEST
from engrain.stores.postgres.sql import load
from engrain.stores.postgres.vectors import VectorSearch

_SQL = load("deployment.sql")


class Deployment(VectorSearch):
    def deployment(self) -> list[Finding]:
        ((fsync, pages, commit, sealed, near),) = self._asked(None, _SQL["settings"])
        ((nobodys, owned),) = self._asked(None, _SQL["owners"])
        ((standby, reads),) = self._asked(None, _SQL["unwritable"])
        around = [_sync(fsync, pages, commit), _sealed(sealed, near), check_owners(nobodys, owned)]
        return [*around, *_writable(standby, reads)]

    def search_state(self, scope: Scope) -> Finding:
        rows = self._asked(None, _SQL["large"], (scope.id, self.large, WIDEST))
        missing = sum(count for count, there in rows if not there)
        if missing:
            why = f"{missing:,} vectors have no index yet, so that every search compares them all"
            return Finding("search", "warn", why, "engrain recall starts to build it in a program that stays open")
        if rows:
            return Finding("search", "pass", f"{sum(count for count, _ in rows):,} vectors have an index of their own")
        return Finding("search", "pass", f"below {self.large:,} vectors all are compared; no index is needed")


def _sync(fsync: str, pages: str, commit: str) -> Finding:
    told = f"fsync {fsync}, full_page_writes {pages}, synchronous_commit {commit}"
    if "off" in (fsync, pages):
        why = f"a power cut may damage or lose the whole database ({told})"
        return Finding("sync", "fail", why, "alter system set fsync = on; … full_page_writes = on; pg_reload_conf()")
    if commit == "off":
        why = f"a crash may lose the last acknowledged writes ({told})"
        return Finding("sync", "fail", why, "alter role … reset synchronous_commit, or set it to on")
    return Finding("sync", "pass", f"every commit waits for the disk ({told})")


def _writable(standby: bool, reads: bool) -> Iterator[Finding]:
    if standby:
        why = "the server is a standby, which can only be read, so that nothing new is kept"
        yield Finding("writable", "fail", why, "name the primary in the URL, or select pg_promote()")
    elif reads:
        why = "default_transaction_read_only is on, so that nothing new is kept"
        yield Finding("writable", "fail", why, "alter database … reset default_transaction_read_only; or alter role …")


def _sealed(sealed: bool, near: bool) -> Finding:
    if sealed or near:
        way = "encrypted (TLS)" if sealed else "on this machine"
        return Finding("encryption", "pass", f"the connection is {way}; at rest it is for the server's own disk")
    why = "the connection to the server is not encrypted, and goes over a network"
    return Finding("encryption", "warn", why, "add sslmode=verify-full to the URL; ssl = on in postgresql.conf")
