"""The group `engrain`: it knows every command by name and imports only the one that is called."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from engrain import __version__
from engrain.cli.command import HelpContext
from engrain.cli.context import DEFAULT_STORE, CommandContext
from engrain.cli.output import print_error, to_json
from engrain.core.errors import EngrainError, OutcomeUnknown

EXIT_INTERRUPTED, EXIT_PIPE_CLOSED = 130, 141

# name: its module in `commands` and function, and its line in the overview, so that `--help` imports no command.
SECTIONS: dict[str, dict[str, tuple[str, str]]] = {
    "Remember and find": {
        "remember": ("remember:remember", "Save a text, word for word."),
        "recall": ("lookup:recall", "Find items that help with a question."),
        "prompt": ("lookup:prompt", "Print all that a model should know for a request."),
        "slot": ("lookup:slot", "Show the value of a slot."),
        "slots": ("lookup:slots", "List the slots that have a value."),
        "relate": ("remember:relate", "Save a relation between two entities."),
        "about": ("lookup:about", "List the relations of an entity."),
        "load": ("transfer:load", "Import an export, notes, or a file of mem0, ChatGPT or Claude."),
        "export": ("transfer:export", "Write this memory to a file."),
    },
    "Items": {
        "list": ("lookup:list_items", "List items, newest first."),
        "get": ("lookup:get", "Show one item in full."),
        "explain": ("lookup:explain", "Show where an item came from."),
        "correct": ("remember:correct", "Replace a text that was wrong from the start."),
        "pin": ("remember:pin", "Protect an item from consolidation."),
        "forget": ("remember:forget", "Remove items, including their bytes on disk."),
    },
    "Agent": {
        "chat": ("chat:chat", "Talk with an agent that uses this memory."),
    },
    "Sessions, episodes, procedures": {
        "add-message": ("remember:add_message", "Keep a message, and the lasting facts in it."),
        "sessions": ("lookup:sessions", "List sessions, or show the messages of one."),
        "episodes": ("lookup:episodes", "List recent events."),
        "procedures": ("lookup:procedures", "List procedures and how often each worked."),
    },
    "Page": {
        "ui": ("ui:ui", "Look into a memory in the browser, and correct it."),
    },
    "Markdown files": {
        "files": ("files:files", "Sync SOUL.md, MEMORY.md and daily logs with this memory."),
    },
    "Durable tasks": {
        "tasks": ("tasks:tasks", "List, show, resume, resolve, signal, park, cancel or prune tasks."),
    },
    "Coding agents": {
        "connect": ("connect:connect", "Give coding agents a memory; switch it on and off."),
        "recap": ("connect:recap", "Show what happened in this repository today or this week."),
        "rules": ("connect:rules", "Show what agents are told in this repository; edit or forget it."),
        "disconnect": ("connect:disconnect", "Take it away again; every file is restored."),
    },
    "Serve": {
        "serve": ("serve:serve", "Serve this store over HTTP."),
        "mcp": ("serve:mcp", "Give an agent this memory as tools (Model Context Protocol)."),
        "keys": ("serve:keys", "Add, list, rotate or revoke the keys of the server."),
    },
    "Operate the store": {
        "status": ("status:status", "Show counts, store, embedder and pending work."),
        "memories": ("status:memories", "List every memory in the store, with its owner."),
        "maintain": ("status:maintain", "Remove expired episodes and old tasks, embed what is new."),
        "doctor": ("status:doctor", "Run 35 checks; show how to fix each problem."),
        "erase": ("privacy:erase", "Erase a user, a session or a source, with a receipt."),
        "undo": ("privacy:undo", "Remove everything that came from one source."),
        "hold": ("privacy:hold", "Protect a user's data from removal (legal hold)."),
        "audit": ("privacy:audit", "Show and verify the log of removals."),
        "backup": ("transfer:backup", "Copy the store to a verified file while it is in use."),
        "restore": ("transfer:restore", "Restore a backup without what was forgotten since."),
        "replay": ("transfer:replay", "Repeat later erasures in a restored store."),
        "copy": ("transfer:copy_store", "Copy the whole store to another and compare both."),
        "bench": ("bench:bench", "Measure recall quality and speed."),
        "evaluate": ("bench:evaluate", "Play your own sessions through a fresh memory, and score it."),
        "demo": ("demo:demo", "See it work: half a minute, nothing to set up."),
    },
}
COMMANDS = {name: entry for section in SECTIONS.values() for name, entry in section.items()}
# Names that other tools give to the same command.
ALIASES = {
    **dict.fromkeys(("add", "save", "store", "insert"), "remember"),
    **dict.fromkeys(("search", "find", "query", "ask"), "recall"),
    **dict.fromkeys(("delete", "remove", "rm"), "forget"),
    **dict.fromkeys(("update", "edit"), "correct"),
    **dict.fromkeys(("check", "verify"), "doctor"),
    **dict.fromkeys(("migrate", "move"), "copy"),
    **dict.fromkeys(("users", "scopes"), "memories"),
    "why": "explain",
    "import": "load",
    "dump": "export",
    "show": "get",
    "unpin": "pin --off",
    "help": "--help",
}


class RootGroup(click.Group):
    """The commands of `engrain`. Every expected error ends as one line on stderr."""

    context_class = HelpContext

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(importlib.import_module(f"engrain.cli.commands.{module}"), name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            from engrain.core.validation import find_similar_names

            similar = [ALIASES[args[0]]] if args[0] in ALIASES else find_similar_names(args[0], COMMANDS)
            hint = f" Did you mean 'engrain {similar[0]}'?" if similar else ""
            raise click.UsageError(f"{error.message}{hint}", ctx) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, commands in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name, summary) for name, (_, summary) in commands.items()])

    def invoke(self, ctx: click.Context) -> Any:
        # Caught before click sees it: click would report it as an error of ours.
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise click.exceptions.Exit(silence_closed_pipe()) from None

    def main(  # type: ignore[override]
        self, args: Sequence[str] | None = None, prog_name: str | None = None, **extra: Any
    ) -> None:
        argv = [*(sys.argv[1:] if args is None else args)]
        sys.exit(
            get_exit_code(lambda: super(RootGroup, self).main(argv, prog_name, standalone_mode=False, **extra), argv)
        )


@click.group(cls=RootGroup, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--store", metavar="PATH|URL", envvar="ENGRAIN_STORE", help="File, server or .toml file (default: engrain.db)."
)
@click.option("--user", envvar="ENGRAIN_USER", help="The user whose memory it is. Users never see each other's memory.")
@click.option("--agent", envvar="ENGRAIN_AGENT", help="The agent whose memory it is.")
@click.option("--tenant", envvar="ENGRAIN_TENANT", help="The tenant whose memory it is.")
@click.version_option(__version__, message="engrain %(version)s")
@click.pass_context
def root(ctx: click.Context, store: str | None, user: str | None, agent: str | None, tenant: str | None) -> None:
    """A memory for AI agents that stays: one file, no API key, no server.

    \b
      engrain remember "Ana prefers Python over JavaScript."
      engrain recall "Which language should the example use?"
      engrain demo

    `engrain COMMAND --help` shows examples and describes the output. The options below also work after the
    command. Each has an environment variable: ENGRAIN_STORE, ENGRAIN_USER, ENGRAIN_AGENT, ENGRAIN_TENANT.

    With --json a command prints one JSON document. These print JSON Lines, one value a line: list, memories, audit,
    tasks, hold, export --all-agents, chat, files watch, tasks show --follow.
    """
    if os.environ.get("NO_COLOR"):
        ctx.color = False
    ctx.obj = CommandContext(store, user, agent, tenant)
    if ctx.invoked_subcommand is None:
        click.echo(_overview(store or DEFAULT_STORE))


def _overview(store: str) -> str:
    def line(command: str, meaning: str) -> str:
        return f"  {click.style(command.ljust(40), fg='cyan')}{meaning}"

    exists = "://" in store or Path(store).expanduser().exists()
    state = "" if exists else click.style(" (does not exist yet: the first remember creates it)", dim=True)
    return "\n".join(
        [
            click.style("engrain", bold=True) + f" {__version__}: a memory for AI agents that stays.",
            click.style("One file, no API key, no server.", dim=True),
            "",
            line("engrain demo", "see it work, in half a minute"),
            line('engrain remember "Ana likes tea."', "save a text, word for word"),
            line('engrain recall "What does Ana drink?"', "find it by meaning"),
            line("engrain list", "list what is saved"),
            line("engrain --help", "list every command"),
            "",
            f"Store: {store}{state}",
        ]
    )


def get_exit_code(run: Callable[[], object], argv: Sequence[str]) -> int:
    """Run and return the exit code: 0 done, 1 error, 2 wrong usage, 130 Ctrl-C, 141 the reader closed the pipe."""
    as_json = "--json" in (argv[: argv.index("--")] if "--" in argv else argv)
    try:
        code = run()
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except click.Abort as abort:
        if isinstance(abort.__cause__, KeyboardInterrupt):
            return _report_interrupt(*getattr(abort.__cause__, "__notes__", ()))
        click.echo("Nothing was changed.", err=True)
        return 1
    except click.UsageError as error:
        if not as_json:
            error.show()
            return error.exit_code
        return _report_error("UsageError", error.format_message(), True, error.exit_code)
    except click.ClickException as error:
        return _report_error(type(error).__name__, error.format_message(), as_json)
    except OutcomeUnknown as error:
        if isinstance(error.interrupt, KeyboardInterrupt):
            return _report_interrupt(str(error), *getattr(error, "__notes__", ()))
        return _report_error(type(error).__name__, str(error), as_json)
    except EngrainError as error:
        return _report_error(type(error).__name__, str(error), as_json)
    except BrokenPipeError:
        return silence_closed_pipe()
    except OSError as error:
        return _report_error(type(error).__name__, f"{error}.", as_json)
    except Exception as error:
        # A defect of engrain: its report needs the traceback, and a program still gets a JSON document.
        if not as_json:
            raise
        traceback.print_exc()
        return _report_error(type(error).__name__, str(error), True)


def _report_error(kind: str, message: str, as_json: bool, code: int = 1) -> int:
    if as_json:
        click.echo(to_json({"error": {"type": kind, "message": message}}))
    else:
        print_error(message, color=False if os.environ.get("NO_COLOR") else None)
    return code


def _report_interrupt(*notes: str) -> int:
    click.echo(" ".join(["Stopped.", *notes]), err=True)
    return EXIT_INTERRUPTED


def silence_closed_pipe() -> int:
    """Let `engrain list | head` end silently: Python would report the closed pipe when it flushes stdout at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return EXIT_PIPE_CLOSED
