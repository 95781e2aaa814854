"""Say whether a store mixes items of nobody with those of somebody."""

from __future__ import annotations

from engrain.core.queries import Finding


def owners(nobodys: int, owned: int) -> Finding:
    """`nobodys` are items whose scope names nobody, `owned` the memories of users."""
    if nobodys and owned:
        # Nearly always a program that forgot to say whose memory it opens.
        why = f"{nobodys:,} of its items belong to nobody, beside the memories of {owned:,} users"
        return Finding(
            "owners", "warn", why, "engrain list, without --user, shows them; give every Memory(…) its user="
        )
    if nobodys:
        return Finding(
            "owners",
            "pass",
            f"one memory without a user, with {nobodys:,} item{'s' * (nobodys != 1)}, and no user's beside it",
        )
    return Finding("owners", "pass", f"every item belongs to somebody; users with a memory: {owned:,}")
