"""The form that all commands share: the same common options, and help with examples and what is printed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import click

COMMON = ("store", "user", "agent", "tenant")


class Verb(click.Command):
    """`examples` are real command lines; `prints` says what comes out."""

    def __init__(self, *args: Any, examples: Sequence[str] = (), prints: str = "", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.examples = examples
        self.prints = prints
        self.params += _common_options()

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
        formatter.write_paragraph()
        formatter.write_text("Which memory: --store PATH|URL, --user, --agent, --tenant, here or before the command.")


def verb(name: str, *, examples: Sequence[str], prints: str) -> Callable[[Callable[..., Any]], click.Command]:
    """A command of the memory: its function gets the Session first."""

    def made(function: Callable[..., Any]) -> click.Command:
        command = click.command(name, cls=Verb, examples=examples, prints=prints)
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
