"""Say what an erasure took, and how it was looked for."""

from __future__ import annotations

from collections.abc import Mapping

from engrain.core.checked import several

# What the kinds of rows are called, in the order in which they are told; another is called by its name, at the end.
KINDS: Mapping[str, tuple[str, str | None]] = {
    "scope": ("memory", "memories"),
    "item": ("item", None),
    "source": ("source", None),
    "vector": ("vector", None),
    "session": ("session", None),
    "summary": ("summary", "summaries"),
    "progress": ("mark of progress", "marks of progress"),
    "episode": ("episode", None),
    "raw_text": ("raw output", None),
    "trial": ("trial", None),
    "request": ("answered request", None),
    "task": ("task", None),
    "step": ("step", None),
    "large_result": ("large result", None),
    "snapshot": ("snapshot", None),
    "event": ("event", None),
    "cut": ("text that it was cut out of", "texts that it was cut out of"),
    "beside": ("key on another server", "keys on other servers"),
    "files": ("file", None),
}


def counted(counts: Mapping[str, int]) -> str:
    kinds = dict.fromkeys([*KINDS, *sorted(counts)])
    return ", ".join(several(counts[kind], *KINDS.get(kind, (kind, None))) for kind in kinds if counts.get(kind))


def looked_again(seen: Mapping[str, int]) -> str:
    """What a receipt says under `verified`."""
    rows = several(seen["rows"], "row is", "rows are") if seen["rows"] else "no row is"
    if not seen["prints"] or not seen["bytes"]:
        return f"Looked again: {rows} left; no bytes were looked through."
    found = f"{seen['found']:,}" if seen["found"] else "none"
    samples = f"{found} of {several(seen['prints'], 'sample')} of its texts, names and vectors"
    others = f" ({seen['shared']:,} of them stand in what stays, too)" if seen.get("shared") else ""
    return f"Looked again: {rows} left, and {samples}, in {seen['bytes']:,} bytes of files{others}."
