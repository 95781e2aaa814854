"""The form that all commands share: the same common options, and help with examples and what is printed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import click

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
        from engrain.cli.session import typed

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
