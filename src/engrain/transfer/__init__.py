"""Move memories: export, load, import from other systems, copy between stores."""
