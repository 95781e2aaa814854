"""The command that talks: an agent with this memory, in the terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click

from engrain.cli.command import verb
from engrain.cli.context import Session, whole_id
from engrain.cli.output import faint, line, many, safe, table
from engrain.core.errors import ConfigError, EngrainError, UnknownKey

if TYPE_CHECKING:
    from engrain.agent.agent import AgentWithMemory
    from engrain.agent.results import AgentReply, CallResult
    from engrain.memory import Memory

VARIABLE = "ENGRAIN_AGENT_MODEL"
HOW = f"""no model is set. One of these, with --model or in {VARIABLE}:
  anthropic:claude-sonnet-4-5   with your key in ANTHROPIC_API_KEY
  ollama:NAME                   a model of an Ollama on this machine, no key
  openai:NAME                   with your key in OPENAI_API_KEY; with --url URL any
                                server that speaks its protocol: vLLM, llama.cpp, a gateway"""
HELP = (
    ("/recall QUESTION", "what memory has for a question"),
    ("/forget ID", "remove an item for good"),
    ("/status", "what was asked and spent, and what is kept"),
    ("/quit", "end the session, as Ctrl-D does"),
)
SHOWN = 200


@verb(
    "chat",
    examples=(
        "engrain chat --model anthropic:claude-sonnet-4-5",
        "engrain chat --model ollama:llama3.2 --session monday",
        "echo 'What do I like?' | engrain chat --json",
    ),
    prints="Each answer; calls of tools and tokens go to stderr. With --json, JSON Lines: one answer a line, then "
    "the session and its summary.",
)
@click.option("--model", envvar=VARIABLE, metavar="NAME", help=f"Who answers; else that of {VARIABLE}.")
@click.option("--url", metavar="URL", help="Where the model's server is, if elsewhere.")
@click.option("--session", metavar="NAME", help="Go on with a session, or give a new one a name.")
@click.option("--system", metavar="TEXT", default="", help="Who the agent is to be.")
def chat(cli: Session, model: str | None, url: str | None, session: str | None, system: str) -> None:
    """Talk with an agent that has this memory.

    It recalls before it answers, and keeps what is said. A line is a message; /help lists the commands. Ctrl-C stops
    an answer and not the session.
    """
    if not model:
        raise ConfigError(HOW)
    from engrain.agent.agent import AgentWithMemory
    from engrain.providers.chat import open_model

    speaker = open_model(model, url)
    with cli.memory(makes=True, embeds="hello", background=True) as memory:
        talk = Talk(cli, memory)
        opened = memory.start_session(session)
        options: dict[str, Any] = {"session": opened.session, "system": system, "memory_tools": True}
        talk.agent = AgentWithMemory(memory, speaker, on_call=talk.called, **options)
        talk.note(f"{model} in session {opened.session}. /help lists the commands.", only_people=True)
        try:
            talk.go_on()
        finally:
            talk.end()
    if talk.failed and not sys.stdin.isatty():
        click.get_current_context().exit(1)


@dataclass
class Talk:
    """A conversation at the terminal, or through a pipe."""

    cli: Session
    memory: Memory
    agent: AgentWithMemory = field(init=False)
    failed: bool = False

    def go_on(self) -> None:
        commands: dict[str, Callable[[str], None]] = {
            "/recall": self._recall, "/forget": self._forget, "/status": self._status, "/help": self._help,
        }  # fmt: skip
        for said in _lines():
            word, _, rest = said.partition(" ")
            if word in ("/quit", "/exit"):
                return
            try:
                if word.startswith("/"):
                    commands.get(word, self._unknown)(rest.strip())
                else:
                    self._answer(self._asked(said))
            except EngrainError as error:
                self._fail(error)
            except KeyboardInterrupt:
                self.note("Stopped. What you said is kept; /quit ends the session.")

    def _asked(self, said: str) -> AgentReply:
        from engrain.providers.http import on_retry

        before = on_retry.set(lambda sentence: self.note(f"  {sentence}"))
        try:
            return self.agent.run(said)
        finally:
            on_retry.reset(before)

    def called(self, one: CallResult) -> None:
        given = ", ".join(f"{name}={value!r}" for name, value in one.arguments.items())
        mark = "✗" if one.failed else "→"
        self.note(f"  {one.tool}({_short(given)}) {mark} {_short(one.result)}")

    def note(self, text: str, only_people: bool = False) -> None:
        """Beside the answers: on stderr, and not where a program reads."""
        if not self.cli.json and not (only_people and not sys.stdin.isatty()):
            click.echo(faint(safe(text)), err=True)

    def end(self) -> None:
        closing = self.memory.end_session()
        if closing is None:
            return
        kept = closing.summary
        if self.cli.json:
            click.echo(line({"session": closing.session, "summary": kept, "kept": closing.kept}))
            return
        where = f"Its summary: {self.cli.command('get', kept.id)}" if kept else "There was nothing to sum up."
        self.note(f"Session {closing.session} has ended. {where}")

    def _answer(self, answer: AgentReply) -> None:
        if self.cli.json:
            click.echo(line(answer))
            return
        click.echo(safe(answer.text) or faint("(no answer)"))
        stopped = "" if answer.stopped == "end" else f" · stopped: {answer.stopped}"
        steps = many(answer.steps, "step")
        self.note(f"  {steps} · {answer.tokens_in:,} tokens in, {answer.tokens_out:,} out{stopped}")

    def _fail(self, error: EngrainError) -> None:
        self.failed = True
        if self.cli.json:
            click.echo(line({"error": {"type": type(error).__name__, "message": str(error)}}))
        else:
            click.echo(f"{click.style('Error:', fg='red', bold=True)} {safe(str(error))}", err=True)

    def _recall(self, question: str) -> None:
        found = self.memory.recall(question)
        self._tell(found, str(found) or "Nothing relevant is remembered.")

    def _forget(self, id: str) -> None:
        gone = self.memory.forget(whole_id(self.memory, id))
        self._tell(gone, f"Forgot {many(len(gone.ids), 'item')}." if gone else "There is no such item.")

    def _status(self, _: str) -> None:
        spent, memory = self.agent.status(), self.memory.store.status(self.memory.scope)
        rows = [("model", str(spent["name"])), ("calls", f"{spent['calls']:,}, of which {spent['failures']:,} failed")]
        rows += [("tokens", f"{spent['tokens_in']:,} in, {spent['tokens_out']:,} out")]
        rows += [("last error", spent["last_error"])] if spent["last_error"] else []
        rows += [("session", self.memory.conversation.session), ("memory", many(memory.items, "item"))]
        self._tell({"agent": spent, "memory": memory}, "\n".join(table(rows)), styled=True)

    def _help(self, _: str) -> None:
        self._tell(dict(HELP), "\n".join(table(HELP)), styled=True)

    def _unknown(self, _: str) -> None:
        raise UnknownKey("unknown command: /help lists those there are.")

    def _tell(self, value: Any, text: str, styled: bool = False) -> None:
        click.echo(line(value) if self.cli.json else text if styled else safe(text))


def _lines() -> Iterator[str]:
    """What is typed or piped in, line by line; a line with nothing on it says nothing."""
    if sys.stdin.isatty():
        with suppress(ImportError):
            import readline  # noqa: F401  # the arrow keys work
    while True:
        try:
            said = input("\n> ") if sys.stdin.isatty() else sys.stdin.readline()
        except (EOFError, KeyboardInterrupt):
            click.echo(err=True)
            return
        if not said and not sys.stdin.isatty():
            return
        if said.strip():
            yield said.strip()


def _short(text: str) -> str:
    said = " ".join(text[: 2 * SHOWN].split())
    return said if len(said) <= SHOWN else said[: SHOWN - 1] + "…"
