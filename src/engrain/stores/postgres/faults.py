"""Say in our own errors what the server or the driver reported."""

from __future__ import annotations

import psycopg

from engrain.core.errors import (
    BeingErased,
    ConfigError,
    DiskFull,
    EngrainError,
    InvalidInput,
    OnHold,
    ReadOnlyStore,
    StoreBusy,
    StoreCorrupt,
    StoreError,
    StoreUnavailable,
)

# The server rolled the transaction back because of others: doing it again is right.
_AGAIN = ("40001", "40P01")
# It went away, is going away or is not up yet.
_GONE = ("57P01", "57P02", "57P03", "57P05", "25P03", "25P04")


def lost(exc: psycopg.Error) -> bool:
    """The connection is gone; whether the last statement was carried out is not known."""
    state = exc.sqlstate
    if state is None:
        return isinstance(exc, psycopg.OperationalError)
    return state in _GONE or state.startswith("08") or state == "40003"


def again(exc: psycopg.Error) -> bool:
    return exc.sqlstate in _AGAIN


def translated(exc: psycopg.Error, where: str) -> EngrainError:
    state, said = exc.sqlstate or "", _said(exc)
    if lost(exc) or state in ("57014", "53300", "53200"):
        return StoreUnavailable(f"{where} did not answer: {said}")
    if again(exc) or state == "55P03":
        return StoreBusy(f"{where}: other writers held the same rows for too long: {said}")
    if state in ("53100", "58030"):
        return DiskFull(f"{where}: {said} Nothing of this write was kept; free some space and repeat it.")
    if state == "ENG02":
        return BeingErased("this user's memory is being erased. Write again when that is done: engrain erase --resume.")
    if state == "ENG03":
        return OnHold("this user's memory is under a legal hold and is to be erased: nothing is shown or written.")
    if state == "25006":
        return ReadOnlyStore(f"{where} takes no writes (a standby?): {said}")
    if state == "42501":
        return ReadOnlyStore(f"{where}: this role may not do that: {said}")
    if state.startswith("28") or state in ("3D000", "42704"):
        return ConfigError(f"{where}: {said}")
    if state.startswith("XX"):
        return StoreCorrupt(f"{where}: {said}")
    if isinstance(exc, psycopg.DataError) or state.startswith("22"):
        return InvalidInput(f"Postgres cannot take this value: {said}")
    return StoreError(f"{where}: {said}")


def _said(exc: psycopg.Error) -> str:
    first = (exc.diag.message_primary or str(exc)).strip().splitlines()
    return f"{first[0].rstrip('.')}." if first else f"{type(exc).__name__}."
