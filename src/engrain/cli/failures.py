"""How a run ends: its exit code, and one calm line or one JSON document where something went wrong."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Sequence

import click

from engrain.cli.plain import document
from engrain.core.errors import EngrainError

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
        from engrain.cli.shown import safe

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
