"""The group `engrain`: it knows every command by name and imports the one that is called."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from engrain.cli.context import DEFAULT_STORE, Session
from engrain.cli.output import document
from engrain.core.errors import EngrainError
from engrain.version import __version__

INTERRUPTED, PIPE_CLOSED = 130, 141


def ended(run: Callable[[], object], args: Sequence[str]) -> int:
    """Run, and answer with the exit code: 0 done, 1 an error, 2 wrong usage, 130 Ctrl-C, 141 the reader went away."""
    wants_json = "--json" in (args[: args.index("--")] if "--" in args else args)
    try:
        code = run()
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except click.Abort as stop:
        return _stopped(stop)
    except click.UsageError as wrong:
        if not wants_json:
            wrong.show()
            return wrong.exit_code
        return _told(wrong.format_message(), "UsageError", True, wrong.exit_code)
    except click.ClickException as wrong:
        return _told(wrong.format_message(), type(wrong).__name__, wants_json, 1)
    except EngrainError as error:
        return _told(str(error), type(error).__name__, wants_json, 1)
    except BrokenPipeError:
        return reader_gone()
    except OSError as error:
        return _told(f"{error}.", type(error).__name__, wants_json, 1)
    except Exception as error:
        # A defect of engrain's: whoever reports it needs the traceback, and a program still gets its document.
        if not wants_json:
            raise
        traceback.print_exc()
        return _told(str(error), type(error).__name__, True, 1)


def _told(message: str, kind: str, as_json: bool, code: int) -> int:
    if as_json:
        click.echo(document({"error": {"type": kind, "message": message}}))
    else:
        from engrain.cli.output import safe

        colour = False if os.environ.get("NO_COLOR") else None
        click.echo(f"{click.style('Error:', fg='red', bold=True)} {safe(message)}", err=True, color=colour)
    return code


def _stopped(stop: click.Abort) -> int:
    if isinstance(stop.__cause__, KeyboardInterrupt):
        click.echo(" ".join(["Stopped.", *getattr(stop.__cause__, "__notes__", ())]), err=True)
        return INTERRUPTED
    click.echo("Nothing was changed.", err=True)
    return 1


def reader_gone() -> int:
    """`engrain list | head` ends in silence: Python would complain once more when it flushes stdout at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return PIPE_CLOSED


# name: where it lives, and its line in the overview. The lines stand here so that `--help` imports no command.
SECTIONS: dict[str, dict[str, tuple[str, str]]] = {
    "Keep and find": {
        "remember": ("engrain.cli.commands.remember:remember", "Keep a text, word for word."),
        "recall": ("engrain.cli.commands.recall:recall", "Find what matters for a question."),
        "slot": ("engrain.cli.commands.lookup:slot", "Look up the one value that a slot holds."),
        "slots": ("engrain.cli.commands.lookup:slots", "List the filled slots."),
        "relate": ("engrain.cli.commands.remember:relate", "Keep a relation between two entities."),
        "about": ("engrain.cli.commands.lookup:about", "List the relations of an entity."),
        "load": ("engrain.cli.commands.load:load", "Bring in an export, notes, or another memory's or chat's file."),
        "export": ("engrain.cli.commands.export:export", "Write all that this memory holds to a file."),
    },
    "One item or many": {
        "list": ("engrain.cli.commands.lookup:list_items", "List items, newest first."),
        "get": ("engrain.cli.commands.lookup:get", "Show one item whole."),
        "why": ("engrain.cli.commands.lookup:why", "Say where an item came from."),
        "correct": ("engrain.cli.commands.remember:correct", "Replace a text that was never so."),
        "pin": ("engrain.cli.commands.remember:pin", "Keep an item from being consolidated away."),
        "forget": ("engrain.cli.commands.remember:forget", "Remove items, down to the bytes on disk."),
    },
    "An agent": {
        "chat": ("engrain.cli.commands.chat:chat", "Talk with an agent that has this memory."),
    },
    "What happened, and how to": {
        "sessions": ("engrain.cli.commands.history:sessions", "List sessions, or show what was said in one."),
        "episodes": ("engrain.cli.commands.history:episodes", "List what happened lately."),
        "procedures": (
            "engrain.cli.commands.history:procedures",
            "List ways of doing things, with their record.",
        ),
    },
    "Files": {
        "files": ("engrain.cli.commands.files:files", "Keep SOUL.md, MEMORY.md and daily logs in step."),
    },
    "Durable tasks": {
        "tasks": (
            "engrain.cli.commands.tasks:tasks",
            "List tasks; show, resume, resolve, signal, park, cancel, prune.",
        ),
    },
    "The memory itself": {
        "status": ("engrain.cli.commands.status:status", "Show how the memory stands."),
        "memories": ("engrain.cli.commands.status:memories", "List the memories of the store, whoever's they are."),
        "maintain": ("engrain.cli.commands.status:maintain", "Remove what is over: expired episodes, old tasks."),
        "doctor": ("engrain.cli.commands.doctor:doctor", "Go through 35 points of care; say what mends each."),
        "erase": ("engrain.cli.commands.erase:erase", "Erase a user, a session or a source, with a receipt."),
        "undo": ("engrain.cli.commands.erase:undo", "Take back what came from one source."),
        "hold": ("engrain.cli.commands.hold:hold", "Keep a user's data from being removed."),
        "audit": ("engrain.cli.commands.audit:audit", "Show the record of what was removed, and check it."),
        "backup": ("engrain.cli.commands.backup:backup", "Copy the store to a checked file while it is in use."),
        "restore": ("engrain.cli.commands.backup:restore", "Bring a backup back, without what was forgotten since."),
        "replay": ("engrain.cli.commands.backup:replay", "Erase again what was erased, in a store that was set back."),
        "copy": ("engrain.cli.commands.backup:copy_memory", "Copy the whole store to another, and prove it."),
        "bench": ("engrain.bench.cli:bench", "Measure quality of recall, and speed."),
        "demo": ("engrain.cli.demo.command:demo", "See it work: half a minute, nothing to set up."),
    },
}
COMMANDS = {name: known for section in SECTIONS.values() for name, known in section.items()}
# What the same act is called elsewhere.
ELSEWHERE = {
    **dict.fromkeys(("add", "save", "store", "insert"), "remember"),
    **dict.fromkeys(("search", "find", "query", "ask"), "recall"),
    **dict.fromkeys(("delete", "remove", "rm"), "forget"),
    **dict.fromkeys(("update", "edit"), "correct"),
    **dict.fromkeys(("check", "verify"), "doctor"),
    **dict.fromkeys(("migrate", "move"), "copy"),
    **dict.fromkeys(("users", "scopes"), "memories"),
    "import": "load",
    "dump": "export",
    "show": "get",
    "unpin": "pin --off",
    "help": "--help",
}


class Root(click.Group):
    """Commands are imported when called; whatever goes wrong ends as one calm line."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(importlib.import_module(module), name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as wrong:
            from engrain.core.validation import find_similar_names

            meant = [ELSEWHERE[args[0]]] if args[0] in ELSEWHERE else find_similar_names(args[0], COMMANDS)
            told = f" Did you mean 'engrain {meant[0]}'?" if meant else ""
            raise click.UsageError(f"{wrong.message}{told}", ctx) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, commands in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name, line) for name, (_, line) in commands.items()])

    def invoke(self, ctx: click.Context) -> Any:
        # Caught before click sees it, which would make it look like an error of ours.
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise click.exceptions.Exit(reader_gone()) from None

    def main(  # type: ignore[override]
        self, args: Sequence[str] | None = None, prog_name: str | None = None, **extra: Any
    ) -> None:
        given = [*(sys.argv[1:] if args is None else args)]
        sys.exit(ended(lambda: super(Root, self).main(given, prog_name, standalone_mode=False, **extra), given))


@click.group(cls=Root, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--store", metavar="PATH|URL", envvar="ENGRAIN_STORE", help="The memory's file (default: engrain.db).")
@click.option("--user", envvar="ENGRAIN_USER", help="Whose memory; part of the wall between memories.")
@click.option("--agent", envvar="ENGRAIN_AGENT", help="Which agent's memory.")
@click.option("--tenant", envvar="ENGRAIN_TENANT", help="Which tenant's memory.")
@click.version_option(__version__, message="engrain %(version)s")
@click.pass_context
def root(ctx: click.Context, store: str | None, user: str | None, agent: str | None, tenant: str | None) -> None:
    """A memory for AI agents that stays: one file, no API key, no server.

    \b
      engrain remember "Ana prefers Python over JavaScript."
      engrain recall "Which language should the example use?"
      engrain demo

    `engrain COMMAND --help` has examples and says what is printed. These options may also stand after the
    command; each has an environment variable: ENGRAIN_STORE, ENGRAIN_USER, ENGRAIN_AGENT, ENGRAIN_TENANT.

    With --json, list, memories, audit, tasks, hold, export --all-agents, chat, files watch and tasks show --follow
    print JSON Lines, one thing a line; every other command prints one document.
    """
    if os.environ.get("NO_COLOR"):
        ctx.color = False
    ctx.obj = Session(store, user, agent, tenant)
    if ctx.invoked_subcommand is None:
        click.echo(_overview(store or DEFAULT_STORE))


def _overview(store: str) -> str:
    def line(command: str, meaning: str) -> str:
        return f"  {click.style(command.ljust(40), fg='cyan')}{meaning}"

    there = "://" in store or Path(store).expanduser().exists()
    state = "" if there else click.style(" (none yet: the first remember makes it)", dim=True)
    return "\n".join(
        [
            click.style("engrain", bold=True) + f" {__version__}: a memory for AI agents that stays.",
            click.style("One file, no API key, no server.", dim=True),
            "",
            line("engrain demo", "see it work, in half a minute"),
            line('engrain remember "Ana likes tea."', "keep a text, word for word"),
            line('engrain recall "What does Ana drink?"', "find it by meaning"),
            line("engrain list", "what is in there"),
            line("engrain --help", "every command"),
            "",
            f"Store: {store}{state}",
        ]
    )
