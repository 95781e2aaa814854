"""Measure engrain next to other systems: shared parts of the scripts in bench/."""
