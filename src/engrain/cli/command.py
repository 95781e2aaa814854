"""The form that all commands share: common options, help with examples, `--where` and `--metadata`."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import click

from engrain.core.errors import InvalidInput
from engrain.core.model.filters import FIELDS, FLAG, NUMBER, OPERATORS, TEXT, TIME

_UNBROKEN_HYPHEN = "\u2011"  # as wide as a hyphen; the text of a command has none
_SPECIAL_IN_QUOTES = frozenset('"$`\\!')  # to a shell
SCOPE_OPTIONS = ("user", "agent", "tenant")
STORE_OPTIONS = ("store", *SCOPE_OPTIONS)


class HelpFormatter(click.HelpFormatter):
    """Breaks no line at a hyphen: paths, options and commands can be copied."""

    def write(self, string: str) -> None:
        super().write(string.replace(_UNBROKEN_HYPHEN, "-"))

    def write_text(self, text: str) -> None:
        super().write_text(text.replace("-", _UNBROKEN_HYPHEN))

    def write_dl(self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2) -> None:
        kept = [(name, text.replace("-", _UNBROKEN_HYPHEN)) for name, text in rows]
        super().write_dl(kept, col_max, col_spacing)


class HelpContext(click.Context):
    formatter_class = HelpFormatter


class MemoryCommand(click.Command):
    """A command with `examples`, which are real command lines, and `prints`, which describes its output.

    A `whole_store` command refuses --user, --agent and --tenant: it never works on a single memory. One `of_agents`
    refuses --store as well: `engrain connect` chose the memory.
    """

    context_class = HelpContext

    def __init__(
        self,
        *args: Any,
        examples: Sequence[str] = (),
        prints: str = "",
        whole_store: bool = False,
        of_agents: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.examples = examples
        self.prints = prints
        self.whole_store = whole_store
        self.of_agents = of_agents
        self.params += [
            *(click.Option([f"--{name}"], expose_value=False, hidden=True, callback=_set_on_context)
              for name in STORE_OPTIONS),
            click.Option(["--json"], is_flag=True, expose_value=False, callback=_set_on_context, help="Print JSON."),
        ]  # fmt: skip

    def invoke(self, ctx: click.Context) -> Any:
        from engrain.cli.context import is_typed

        refused = STORE_OPTIONS if self.of_agents else SCOPE_OPTIONS if self.whole_store else ()
        if wrong := [f"--{name}" for name in refused if is_typed(ctx, name)]:
            where = "the memory of `engrain connect`" if self.of_agents else "whole stores, with every memory in them"
            raise click.UsageError(f"{self.name} works on {where}: omit {wrong[0]}.", ctx)
        return super().invoke(ctx)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        typed = list(args)
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            if "unexpected extra argument" not in error.message or not (example := self._quote_words(ctx, typed)):
                raise
            hint = f"Put a text of several words in quotes: {example}"
            raise click.UsageError(f"{error.message}. {hint}", ctx) from None

    def _quote_words(self, ctx: click.Context, args: list[str]) -> str:
        """Return the command with its text in quotes, if it takes one that the shell may have taken apart."""
        names = [str(one.name) for one in self.params if isinstance(one, click.Argument)]
        if not names or names[-1] not in ("text", "query", "request"):
            return ""
        given, rest, _ = self.make_parser(ctx).parse_args(args)
        text = " ".join([given[names[-1]], *rest])
        quoted = shlex.quote(text) if set(text) & _SPECIAL_IN_QUOTES else f'"{text}"'
        return " ".join([ctx.command_path, *(given[name] for name in names[:-1]), quoted])

    def get_short_help_str(self, limit: int = 45) -> str:
        """The first paragraph in full: a list of commands is wrapped, not cut."""
        return " ".join((self.help or "").partition("\n\n")[0].split())

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_help_text(ctx, formatter)
        with formatter.section("Examples"):
            for example in self.examples:
                formatter.write(f"{'':>{formatter.current_indent}}{example}\n")
        with formatter.section("Prints"):
            formatter.write_text(self.prints)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        if self.whole_store or self.of_agents:
            return
        formatter.write_paragraph()
        formatter.write_text("Choose the memory with --store PATH|URL, --user, --agent and --tenant.")


class MemoryGroup(MemoryCommand, click.Group):
    """A command with subcommands."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            if args[0] not in ("list", "ls") or not self.invoke_without_command:
                raise
            raise click.UsageError(f"{error.message} Did you mean 'engrain {self.name}'?", ctx) from None

    def subcommand(
        self, name: str, *, examples: Sequence[str], prints: str
    ) -> Callable[[Callable[..., Any]], click.Command]:
        """Add a subcommand: its function gets the CommandContext first."""
        add = self.command(name, cls=MemoryCommand, examples=examples, prints=prints)
        return lambda function: add(click.pass_obj(function))


def memory_command(name: str, **settings: Any) -> Callable[[Callable[..., Any]], click.Command]:
    """Make a function a command of the memory: it gets the CommandContext first."""
    make = click.command(name, cls=MemoryCommand, **settings)
    return lambda function: make(click.pass_obj(function))


def _set_on_context(ctx: click.Context, option: click.Parameter, value: Any) -> None:
    if value is not None and value is not False:
        setattr(ctx.obj, str(option.name), value)


_WORDS = [operator for operator in OPERATORS if operator[0].isalpha()]
_SIGNS = sorted((operator for operator in OPERATORS if not operator[0].isalpha()), key=len, reverse=True)
_WORD_FORMS = "|".join(word.replace(" ", r"\s+") for word in _WORDS)
_CONDITION = re.compile(
    r"\s*(?P<key>[^\s=!<>]+)\s*"
    rf"(?P<operator>{'|'.join(_SIGNS)}|(?:{_WORD_FORMS})(?!\S))"
    r"\s*(?P<value>.*?)\s*",
    re.DOTALL,
)

where_option = click.option(
    "--where",
    "-w",
    multiple=True,
    metavar="'KEY OP VALUE'",
    help="Filter: 'importance >= 0.5', 'source = page', or JSON. Several filters must all match.",
)


def parse_where(conditions: Sequence[str]) -> dict[str, Any] | None:
    """Join the conditions into one filter; the memory itself checks keys, operators and types."""
    tests: dict[str, dict[str, Any]] = {}
    for text in conditions:
        for key, test in _parse_condition(text).items():
            known = tests.setdefault(key, {})
            for operator, value in test.items():
                if known.get(operator, value) != value:
                    raise InvalidInput(f"--where has {key!r} {operator!r} twice, with two values.")
                known[operator] = value
    return dict(tests) or None


def parse_metadata(pairs: Sequence[str]) -> dict[str, Any] | None:
    """Parse KEY=VALUE: a JSON number, true, false or null becomes that value, everything else is text."""
    found: dict[str, Any] = {}
    for text in pairs:
        key, sign, value = text.partition("=")
        if not sign or not key:
            raise click.UsageError(f"--metadata takes KEY=VALUE, not {text!r}.")
        found[key] = _parse_literal(value)
    return found or None


def parse_json(text: str | None, option: str) -> Any:
    if text is None:
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as exc:
        raise InvalidInput(f"{option} is not JSON: {exc}.") from exc


def _parse_condition(text: str) -> dict[str, dict[str, Any]]:
    if text.lstrip().startswith("{"):
        tests = parse_json(text, f"--where {text!r}")
        return {key: test if isinstance(test, dict) else {"=": test} for key, test in tests.items()}
    match = _CONDITION.fullmatch(text)
    if match is None:
        known = ", ".join(OPERATORS)
        raise InvalidInput(f"--where {text!r} is neither JSON nor KEY OP VALUE. The operators are {known}.")
    operator = " ".join(match["operator"].split())
    return {match["key"]: {operator: _parse_value(match["key"], operator, match["value"])}}


def _parse_value(key: str, operator: str, text: str) -> Any:
    if operator == "exists":
        return _parse_scalar(FLAG, text) if text else True
    kind = TEXT if operator in ("contains", "starts with") else FIELDS.get(key)
    if operator in ("in", "not in"):
        values = _try_json(text)
        return values if isinstance(values, list) else [_parse_scalar(kind, part.strip()) for part in text.split(",")]
    return _parse_scalar(kind, text)


def _parse_scalar(kind: str | None, text: str) -> Any:
    if text == "null":
        return None
    literal = _parse_literal(text)
    if kind in (TEXT, TIME):
        return literal if isinstance(literal, str) else text
    if kind == FLAG:
        return {"true": True, "yes": True, "false": False, "no": False}.get(text.lower(), text)
    return literal if kind != NUMBER or isinstance(literal, (int, float)) else text


def _parse_literal(text: str) -> Any:
    """A JSON number, true, false, null or quoted text; else the text itself."""
    found = _try_json(text)
    return text if isinstance(found, (list, dict)) or found != found else found  # NaN is not equal to itself


def _try_json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
