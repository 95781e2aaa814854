"""Texts are found in bytes by their fingerprints, and nothing else is."""

from __future__ import annotations

import random

from engrain.privacy.fingerprints import compute_fingerprints, load_fingerprints, scan_chunks


def text(seed: int, size: int) -> bytes:
    drawn = random.Random(seed)
    return " ".join(f"{drawn.getrandbits(64):016x}" for _ in range(size)).encode()


def test_every_page_of_a_long_text_is_known() -> None:
    long = text(1, 20_000)
    prints = compute_fingerprints([long])
    for start in range(0, len(long) - 4_096, 4_092):
        found, size = scan_chunks(prints, [b"\x00" * 64 + long[start : start + 4_092] + b"\x00" * 64])
        assert len(found), start
        assert size == 4_092 + 128


def test_what_was_never_said_is_not_found() -> None:
    prints = compute_fingerprints([text(1, 5_000), b"a short one, of thirty bytes .", b"tiny"])
    assert len(scan_chunks(prints, [text(2, 50_000)])[0]) == 0


def test_prints_are_kept_as_bytes() -> None:
    prints = compute_fingerprints([b"Ana lives in Lima, near the harbour."])
    again = load_fingerprints(bytes(prints))
    assert len(scan_chunks(again, [b"xx Ana lives in Lima, near the harbour."])[0]) == len(prints) > 0
    assert len(scan_chunks(load_fingerprints(b""), [b"Ana lives in Lima."])[0]) == 0, "of a server there are none"
