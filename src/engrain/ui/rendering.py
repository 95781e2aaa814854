"""Render templates: the environment of jinja2, and how times and numbers are written."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from engrain import __version__
from engrain.core.model.results import describe_counts, split_commands
from engrain.core.validation import count_noun, to_plain
from engrain.ui.text import show_plain, show_text

_MINUTE, _HOUR, _DAY = 60, 3_600, 86_400


@cache
def get_environment() -> Environment:
    made = Environment(
        loader=PackageLoader("engrain.ui"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(
        shown=show_text, plain=show_plain, moment=format_time, day=format_day, clock=format_clock, ago=format_ago,
        number=format_number, seconds=format_seconds, size=format_size, as_json=format_json, counts=describe_counts,
        commands=split_commands, iso=format_iso, local=format_local_input,
    )  # fmt: skip
    made.globals.update(count_noun=count_noun, version=__version__)
    return made


def render(template: str, values: Mapping[str, Any]) -> str:
    return get_environment().get_template(template).render(values)


def to_local(time: datetime) -> datetime:
    """The person sits at the machine that serves the page: its time zone is theirs."""
    return time.astimezone()


def format_time(time: datetime) -> Markup:
    return _time(time, f"{to_local(time):%Y-%m-%d %H:%M}")


def format_day(time: datetime) -> Markup:
    return _time(time, f"{to_local(time):%Y-%m-%d}")


def format_clock(time: datetime) -> Markup:
    return _time(time, f"{to_local(time):%H:%M}")


def format_ago(time: datetime) -> Markup:
    """Write how long ago it was: "3 h ago"; a date if it is more than a month."""
    seconds = (datetime.now(UTC) - time).total_seconds()
    if seconds < 0 or seconds > 30 * _DAY:
        return format_day(time)
    if seconds < _MINUTE:
        return _time(time, "just now")
    for size, unit in ((_DAY, "d"), (_HOUR, "h"), (_MINUTE, "min")):
        if seconds >= size:
            return _time(time, f"{int(seconds // size)} {unit} ago")
    raise AssertionError(seconds)


def format_iso(time: datetime) -> str:
    return time.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def format_local_input(time: datetime) -> str:
    """The value of an input of the type datetime-local."""
    seconds = ":%S" if time.second else ""
    return f"{to_local(time):%Y-%m-%dT%H:%M{seconds}}"


def format_number(value: float) -> str:
    return f"{value:,}"


def format_seconds(seconds: float) -> str:
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 2 * _MINUTE:
        return f"{seconds:.1f} s"
    return f"{seconds / _MINUTE:.0f} min" if seconds < 2 * _HOUR else f"{seconds / _HOUR:.1f} h"


def format_size(count: int) -> str:
    amount = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1000 or unit == "GB":
            break
        amount /= 1000
    return f"{count} B" if unit == "B" else f"{amount:,.1f} {unit}"


def format_json(value: Any) -> str:
    return json.dumps(to_plain(value), indent=2, ensure_ascii=False)


def _time(time: datetime, text: str) -> Markup:
    whole = f"{to_local(time):%A, %d %B %Y, %H:%M:%S %Z}"
    return Markup('<time datetime="{}" title="{}">{}</time>').format(format_iso(time), whole, text)
