"""The checklist for a memory in production: 35 checks of a store and its settings."""

from __future__ import annotations

from engrain.health import durability, operation, privacy, retrieval, safety, tiers
from engrain.health.run_checks import Check

CHECKS: tuple[Check, ...] = (
    *tiers.CHECKS,
    *durability.CHECKS,
    *retrieval.CHECKS,
    *safety.CHECKS,
    *privacy.CHECKS,
    *operation.CHECKS,
)
