"""The form that all commands share: the same common options, and help with examples and what is printed."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

import click

from engrain.core.errors import InvalidInput
from engrain.core.model.filters import FIELDS, FLAG, NUMBER, OPERATORS, TEXT, TIME

OWNER = ("user", "agent", "tenant")
COMMON = ("store", *OWNER)


class Verb(click.Command):
    """`examples` are real command lines; `prints` says what comes out. One that takes stores as arguments, `whole`, is
    about no single memory: to name one would look as if only that were taken."""

    def __init__(
        self, *args: Any, examples: Sequence[str] = (), prints: str = "", whole: bool = False, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self.examples = examples
        self.prints = prints
        self.whole = whole
        self.params += _common_options()

    def invoke(self, ctx: click.Context) -> Any:
        from engrain.cli.context import typed

        named = [f"--{name}" for name in OWNER if self.whole and typed(ctx, name)]
        if named:
            raise click.UsageError(f"{self.name} takes whole stores, all memories in them: leave {named[0]} out.", ctx)
        return super().invoke(ctx)

    def get_short_help_str(self, limit: int = 45) -> str:
        """The first paragraph, whole: a list of commands is wrapped, not cut."""
        return " ".join((self.help or "").partition("\n\n")[0].split())

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_help_text(ctx, formatter)
        with formatter.section("Examples"):
            for example in self.examples:
                formatter.write(f"{'':>{formatter.current_indent}}{example}\n")
        with formatter.section("Prints"):
            formatter.write_text(self.prints)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        if self.whole:
            return
        formatter.write_paragraph()
        formatter.write_text("Which memory: --store PATH|URL, --user, --agent, --tenant, here or before the command.")


def verb(
    name: str, *, examples: Sequence[str], prints: str, whole: bool = False
) -> Callable[[Callable[..., Any]], click.Command]:
    """A command of the memory: its function gets the Session first."""

    def made(function: Callable[..., Any]) -> click.Command:
        command = click.command(name, cls=Verb, examples=examples, prints=prints, whole=whole)
        return command(click.pass_obj(function))

    return made


def _common_options() -> list[click.Parameter]:
    hidden: list[click.Parameter] = [
        click.Option([f"--{name}"], expose_value=False, hidden=True, callback=_set_on_session) for name in COMMON
    ]
    shown = click.Option(
        ["--json"], is_flag=True, expose_value=False, callback=_set_on_session, help="Machine-readable output."
    )
    return [*hidden, shown]


def _set_on_session(ctx: click.Context, option: click.Parameter, value: Any) -> None:
    if value is not None and value is not False:
        setattr(ctx.obj, str(option.name), value)


WHERE_HELP = "'importance >= 0.5', 'source = page', or JSON; repeat it to narrow down."

_WORDS = [one for one in OPERATORS if one[0].isalpha()]
_SIGNS = sorted((one for one in OPERATORS if not one[0].isalpha()), key=len, reverse=True)
_WORD_FORMS = "|".join(word.replace(" ", r"\s+") for word in _WORDS)
_CONDITION = re.compile(
    r"\s*(?P<key>[^\s=!<>]+)\s*"
    rf"(?P<operator>{'|'.join(_SIGNS)}|(?:{_WORD_FORMS})(?!\S))"
    r"\s*(?P<value>.*?)\s*",
    re.DOTALL,
)


def where_option(function: Any) -> Any:
    return click.option("--where", "-w", "where", multiple=True, metavar="'KEY OP VALUE'", help=WHERE_HELP)(function)


def parsed_where(given: Sequence[str]) -> dict[str, Any] | None:
    """All that was given must hold; the memory itself checks keys, operators and types."""
    tests: dict[str, dict[str, Any]] = {}
    for text in given:
        for key, test in _parts(text).items():
            found = tests.setdefault(key, {})
            for operator, value in test.items():
                if found.get(operator, value) != value:
                    raise InvalidInput(f"--where asks for {key!r} {operator!r} twice, with two values.")
                found[operator] = value
    return dict(tests) or None


def parsed_metadata(given: Sequence[str]) -> dict[str, Any] | None:
    """KEY=VALUE, where a value that is a JSON number, true, false or null is one, and everything else is text."""
    found: dict[str, Any] = {}
    for text in given:
        key, sign, value = text.partition("=")
        if not sign or not key:
            raise click.UsageError(f"--metadata takes KEY=VALUE, not {text!r}.")
        found[key] = _literal(value)
    return found or None


def _parts(text: str) -> dict[str, dict[str, Any]]:
    if text.lstrip().startswith("{"):
        return {key: test if isinstance(test, dict) else {"=": test} for key, test in _json_object(text).items()}
    match = _CONDITION.fullmatch(text)
    if match is None:
        known = ", ".join(OPERATORS)
        raise InvalidInput(f"--where {text!r} is neither JSON nor KEY OP VALUE. The operators are {known}.")
    operator = " ".join(match["operator"].split())
    return {match["key"]: {operator: _value(match["key"], operator, match["value"])}}


def _json_object(text: str) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(text)
    except (ValueError, RecursionError) as exc:
        raise InvalidInput(f"--where {text!r} is not JSON: {exc}.") from exc
    return found


def _value(key: str, operator: str, text: str) -> Any:
    if operator == "exists":
        return _scalar(FLAG, text) if text else True
    kind = TEXT if operator in ("contains", "starts with") else FIELDS.get(key)
    if operator in ("in", "not in"):
        listed = _json_list(text)
        return listed if listed is not None else [_scalar(kind, one.strip()) for one in text.split(",")]
    return _scalar(kind, text)


def _scalar(kind: str | None, text: str) -> Any:
    if text == "null":
        return None
    if kind in (TEXT, TIME):
        return _unquoted(text)
    if kind == FLAG:
        return {"true": True, "yes": True, "false": False, "no": False}.get(text.lower(), text)
    literal = _literal(text)
    return literal if kind != NUMBER or isinstance(literal, (int, float)) else text


def _literal(text: str) -> Any:
    """A JSON number, true, false, null or quoted text; else the text as it stands."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return text if isinstance(found, (list, dict)) or found != found else found  # NaN is not equal to itself


def _json_list(text: str) -> list[Any] | None:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, list) else None


def _unquoted(text: str) -> str:
    found = _literal(text)
    return found if isinstance(found, str) else text
