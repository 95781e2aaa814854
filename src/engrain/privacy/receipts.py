"""Build the receipt of an erasure, which has no content, and verify it against the store and its servers."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, get_args

from engrain import __version__
from engrain.core.errors import ConfigError, EngrainError, InvalidInput, NotFound, raise_interrupt
from engrain.core.identity import Scope
from engrain.core.model.audit import AuditEntry, is_code
from engrain.core.model.erasure import Erasure, Subject, SubjectKind, find_owner
from engrain.core.validation import check_count, count_noun, parse_strict
from engrain.maintenance.backups import hash_folder
from engrain.ports import Services
from engrain.ports.erasure import Erasable
from engrain.ports.plain_files import read_plain
from engrain.privacy.audit import MAX_ENTRIES

FORMAT = 1
METHODS: Mapping[str, Sequence[str]] = {
    "sqlite": ("rows_in_one_transaction", "secure_delete", "log_truncated", "unused_bytes_overwritten"),
    "sqlite_encrypted": ("rows_in_one_transaction", "secure_delete", "log_truncated", "every_page_written_anew"),
    "postgres": ("rows_in_one_transaction", "vacuum"),
    "reference": ("rows_in_one_transaction",),
}
# Ways to remove the copies that an erasure does not reach; docs/reference/receipts.md explains each.
BY_HAND, SERVERS_OWN = "removed_by_hand", "its_own_retention"
_BEGINNING_OF_TIME = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Receipt:
    """The receipt's `values`, and the number and hash of its entry in the chained audit log."""

    values: Mapping[str, Any]
    n: int
    hash: str

    @staticmethod
    def of(entry: AuditEntry) -> Receipt:
        return Receipt(entry.details, entry.n, entry.hash)

    @staticmethod
    def read(text: str | bytes) -> Receipt:
        try:
            values = _normalize_form(parse_strict(text.encode() if isinstance(text, str) else text))
            audit = values.pop("audit")
            n = check_count(audit["n"], "the number of an entry", 1, 1 << 60)
            if values.get("format") != FORMAT or not _is_well_formed(values):
                raise ValueError("format")
            return Receipt(values, n, str(audit["hash"]))
        except (ValueError, KeyError, TypeError, AttributeError, InvalidInput) as exc:
            raise InvalidInput(
                "this is not an erasure receipt. Give a file that `engrain erase --receipt FILE` wrote."
            ) from exc

    @property
    def digest(self) -> str:
        """Return a hash over the whole receipt."""
        return hashlib.blake2b(str(self).encode(), digest_size=16).hexdigest()

    def __str__(self) -> str:
        """Return the receipt as JSON, for a file."""
        return json.dumps({**self.values, "audit": {"n": self.n, "hash": self.hash}}, indent=2, sort_keys=True)


def read_receipts(sources: Sequence[Receipt | str | os.PathLike[str]]) -> list[Receipt]:
    """Read receipts from files and from the .json files in folders. InvalidInput names a bad file."""
    found: list[Receipt] = []
    for receipt in sources:
        if isinstance(receipt, Receipt):
            found.append(receipt)
            continue
        path = Path(receipt).expanduser()
        files = sorted(path.glob("*.json")) if path.is_dir() else [path]
        if not files:
            raise InvalidInput(f"there is no receipt in {path}: none of its files ends in .json.")
        found += map(_read_file, files)
    return found


def _read_file(file: Path) -> Receipt:
    try:
        content = read_plain(file)
    except (NotFound, InvalidInput) as exc:
        raise InvalidInput(f"{exc} Nothing is restored.") from exc
    try:
        return Receipt.read(content)
    except InvalidInput as exc:
        raise InvalidInput(f"{file}: {exc} Nothing is restored.") from exc


def list_digests(receipts: Sequence[Receipt]) -> Mapping[str, Mapping[str, str]]:
    """Return id -> digest of the receipts, for the audit log of a restored store."""
    return {"receipts": {str(receipt.values["receipt"]): receipt.digest for receipt in receipts}} if receipts else {}


def _is_well_formed(values: Mapping[str, Any]) -> bool:
    named = all(is_code(values[name]) for name in ("receipt", "subject"))
    times = (datetime.fromisoformat(values[name]) for name in ("asked_at", "erased_at"))
    return named and values["by"] in get_args(SubjectKind) and all(when.tzinfo is not None for when in times)


def _normalize_form(document: Any) -> dict[str, Any]:
    """Accept the forms in which `erase --json` and `audit --json` print a receipt too."""
    found = document["receipt"] if isinstance(document.get("receipt"), dict) else document
    values = found.get("values", found.get("details"))
    return found if values is None else {**values, "audit": {"n": found["n"], "hash": found["hash"]}}


@dataclass(frozen=True, slots=True)
class ServerCheck:
    answered: tuple[str, ...] = ()
    left: int = 0  # keys and points that they still have
    unanswered: tuple[str, ...] = ()  # servers that did not answer, with the reason


@dataclass(frozen=True, slots=True)
class VerificationResult:
    """The result of verifying a receipt. A server that could not be asked makes it false."""

    rows: Mapping[str, int]  # of the subject, from before the erasure, by kind
    found: int  # traces of the given texts
    recorded: bool  # the audit log holds the receipt unchanged
    faults: tuple[str, ...] = ()  # of the audit log
    bytes: int = 0  # that were searched for the texts; a server has none
    copies: tuple[str, ...] = ()  # copies of the store's files, which were not searched
    known: bool = True  # the audit log holds a receipt of this id
    carried: datetime | None = None  # when a restore was given this receipt because the log was lost
    servers: ServerCheck = field(default_factory=ServerCheck)

    def __bool__(self) -> bool:
        on_record = self.recorded or self.carried is not None
        if self.servers.left or self.servers.unanswered:
            return False
        return on_record and not any(self.rows.values()) and not self.found and not self.faults

    def __str__(self) -> str:
        verdict = "It still holds." if self else "It does not hold."
        return "\n".join([*self.lines, verdict])

    @property
    def lines(self) -> Iterator[str]:
        """Describe the findings, line by line."""
        rows = sum(self.rows.values())
        left = count_noun(rows, "row is", "rows are") if rows else "No row is"
        yield f"{left} left from before the erasure."
        if self.servers.answered:
            yield f"{count_noun(self.servers.left, 'key')} on {', '.join(self.servers.answered)}."
        for why in self.servers.unanswered:
            yield f"Did not answer: {why}"
        if self.bytes:
            traces = count_noun(self.found, "trace") if self.found else "No trace"
            others = ": other data may have the same words" if self.found else ""
            yield f"{traces} of the given texts in any file{others}."
        yield self._record
        yield from self.faults
        for copy in self.copies:
            yield f"Not searched: {copy}, a copy of the store. Remove it if it is older than the erasure."

    @property
    def _record(self) -> str:
        if self.faults:
            holds = "holds this receipt" if self.recorded else "does not hold this receipt as it is"
            return f"The audit log {holds}, but the log itself was changed: engrain audit verify"
        if self.recorded:
            return "The audit log holds this receipt."
        if self.carried:
            return f"This receipt was carried over by a restore of {self.carried:%Y-%m-%d}: its own log is lost."
        if self.known:
            return "The audit log has other values under this receipt's id: the file was changed."
        return "The audit log has no receipt of this id: it is from another store, or this store is an older backup."


def build_receipt(services: Services, erasure: Erasure, scanned: Mapping[str, int]) -> Mapping[str, Any]:
    status, now = services.items.status(), services.clock()
    backend = status.backend
    form = "sqlite_encrypted" if status.details.get("encrypted") else backend
    return {
        "format": FORMAT,
        "engrain": __version__,
        "receipt": erasure.id,
        "subject": erasure.subject_hash,
        "by": erasure.by,
        "asked_at": erasure.at.isoformat(),
        "erased_at": now.isoformat(),
        "counts": {**erasure.counts, **{name: erasure.notes.get(name, 0) for name in ("other_servers", "files")}},
        "methods": list(METHODS.get(form, ())),
        "verified": {"rows": 0, **scanned},
        "remains": list(_list_remains(services, erasure, backend, now)),
    }


def _list_remains(services: Services, erasure: Erasure, backend: str, now: datetime) -> Iterator[Mapping[str, Any]]:
    """List the copies that the erasure does not reach. The audit log tells how many were made."""
    log = services.audit.entries(0, MAX_ENTRIES) if services.audit else []
    rules = services.policies
    rotation = hash_folder(services, Path(rules.backup_folder)) if rules.backup_folder else None
    if backend != "reference":
        # Those in the rotation folder are deleted in turn.
        made = [
            entry for entry in _list_made(log, "backup") if not rotation or entry.details.get("rotation") != rotation
        ]
        yield {"what": "backups_made_before", "known": len(made), "until": BY_HAND}
    if rotation:
        last = now + timedelta(hours=rules.backup_hours * (rules.backup_keep + 1))
        yield {"what": "backups_in_rotation", "until": last.date().isoformat()}
    if copies := len(_list_made(log, "copy")):
        yield {"what": "copies_made_before", "known": copies, "until": BY_HAND}
    if beside := services.erasing.copies() if services.erasing else ():
        yield {"what": "copies_in_folder", "known": len(beside), "until": BY_HAND}
    # A part's exports are its user's; without a user, those of all memories without one.
    owners = {erasure.subject_hash, erasure.notes.get("owner", erasure.subject_hash)}
    if exports := len(_list_made([entry for entry in log if entry.subject in owners], "export")):
        yield {"what": "exports_made_before", "known": exports, "until": BY_HAND}
    if not erasure.notes.get("named"):
        yield {"what": "folders_not_named", "until": BY_HAND}
    if backend == "postgres":
        yield {"what": "server_log_archives_and_replicas", "until": SERVERS_OWN}
    if services.servers:
        yield {"what": "logs_of_other_servers", "until": SERVERS_OWN}


def _list_made(log: Sequence[AuditEntry], what: str) -> list[AuditEntry]:
    """List the copies that exist, complete or cut off. If a beginning was not recorded, the end counts."""
    failed = {entry.details.get("begun") for entry in log if entry.what == f"{what}_failed"}
    begun = [entry for entry in log if entry.what == f"{what}_begun" and entry.n not in failed]
    return begun + [entry for entry in log if entry.what == what and "begun" not in entry.details]


def verify_receipt(services: Services, receipt: Receipt, texts: Sequence[str], own: Scope) -> VerificationResult:
    """Check again: query the store and the servers, verify the audit log's chain, search all bytes for the texts."""
    if services.erasing is None or services.audit is None:
        raise ConfigError("this store keeps no receipts. Open the one that the receipt is from.")
    values = receipt.values
    done = Erasure(
        values["receipt"], values["subject"], values["by"], "anonymized", datetime.fromisoformat(values["asked_at"])
    )
    entry = next(iter(services.audit.entries(receipt.n - 1, 1)), None)
    # As text: true equals 1 in Python, and a receipt is compared to the letter.
    same = entry is not None and str(Receipt.of(entry)) == str(receipt)
    found, size = _scan_for_texts(services, texts)
    copies, servers = tuple(services.erasing.copies()), _check_servers(services, done, own)
    log = services.audit.entries(0, MAX_ENTRIES)
    # A restore records the receipts that it was given, as id -> digest.
    restores = [(entry.at, entry.details.get("receipts")) for entry in log if entry.what == "restore"]
    digests = [(at, ids[done.id]) for at, ids in restores if isinstance(ids, Mapping) and done.id in ids]
    known = same or bool(digests) or any(entry.details.get("receipt") == done.id for entry in log)
    carried = None if same else next((at for at, digest in digests if digest == receipt.digest), None)
    faults = services.audit.verify().faults
    return VerificationResult(
        services.erasing.count_remaining(done), found, same, faults, size, copies, known, carried, servers
    )


def _scan_for_texts(services: Services, texts: Sequence[str]) -> tuple[int, int]:
    """Count the traces of the texts that stored data does not explain, and the bytes searched.

    If stored data has the whole of a text, all its traces count.
    """
    import numpy as np

    from engrain.privacy.fingerprints import WINDOW_BYTES, compute_fingerprints, find_traces

    if services.erasing is None:
        return 0, 0
    prints = [compute_fingerprints([text.encode()]) for text in texts]
    if not all(map(len, prints)):
        raise InvalidInput(
            f"a text of fewer than {WINDOW_BYTES} bytes, or of few different bytes, would be found by chance. "
            "Give a longer one."
        )
    count, size = 0, 0
    for fingerprints in prints:
        found, shared, size = find_traces(fingerprints, services.erasing.raw(), services.erasing.search_terms(None))
        count += len(found) if len(shared) == len(fingerprints) else len(np.setdiff1d(found, shared))
    return count, size


def _check_servers(services: Services, done: Erasure, own: Scope) -> ServerCheck:
    """Ask every server. `own` is the caller's scope, which may be the erased one."""
    answered: list[str] = []
    unanswered: list[str] = []
    left = 0
    for server in services.servers:
        if isinstance(server, Erasable):
            try:
                left += _count_left(services, server, done, own)
                answered.append(server.where)
            except EngrainError as exc:
                raise_interrupt(exc)
                unanswered.append(f"{server.where}: {exc}")
    return ServerCheck(tuple(answered), left, tuple(unanswered))


def _count_left(services: Services, server: Erasable, done: Erasure, own: Scope) -> int:
    vector_server: object = services.feed
    if server is vector_server:
        return server.count_older(own, done.at, False)
    here = {*services.items.scopes()}
    named = server.known()
    if done.by != "user":
        return sum(1 for scope in {*here, *named} for _ in _list_left_entries(services, done, scope))
    mine = [scope for scope in {*here, *named, own} if _hash_subject(services, find_owner(scope)) == done.subject_hash]
    return sum(server.count_older(scope, done.at, scope in here) for scope in mine)


def _list_left_entries(services: Services, done: Erasure, scope: Scope) -> Iterator[str]:
    """Yield episodes that are left of an erased session, or whose item is gone."""
    if services.episodes is None or services.same_store:
        return
    entries = services.episodes.recent(scope, None, MAX_ENTRIES, _BEGINNING_OF_TIME)
    there = [entry for entry in entries if entry.happened_at <= done.at]
    if done.by == "session":
        for entry in there:
            if _hash_subject(services, Subject(scope, "session", entry.session)) == done.subject_hash:
                yield entry.id
        return
    items = {item.id for item in services.items.get_many(scope, [entry.item for entry in there if entry.item])}
    yield from (entry.id for entry in there if entry.item and entry.item not in items)


def _hash_subject(services: Services, subject: Subject | None) -> str:
    return services.erasing.hash_subject(subject) if services.erasing and subject else ""
