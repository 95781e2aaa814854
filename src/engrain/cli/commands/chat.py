"""The command that runs an agent with this memory in the terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click

from engrain.cli.command import memory_command
from engrain.cli.context import CommandContext, complete_id
from engrain.cli.output import dim, escape, format_table, print_error, to_json_line
from engrain.core.errors import ConfigError, EngrainError, UnknownKey
from engrain.core.tokens import shorten_line
from engrain.core.validation import count_noun

if TYPE_CHECKING:
    from engrain.agent.agent import AgentWithMemory
    from engrain.agent.results import AgentEvent, AgentReply, CallResult
    from engrain.memory import Memory

MODEL_VARIABLE = "ENGRAIN_AGENT_MODEL"
NO_MODEL = f"""no model is set. Set one with --model or in {MODEL_VARIABLE}:
  anthropic:claude-sonnet-4-5   needs your key in ANTHROPIC_API_KEY
  ollama:NAME                   a model of Ollama on this machine, no key
  openai:NAME                   needs your key in OPENAI_API_KEY; with --url URL any server
                                with the same protocol: vLLM, llama.cpp, a gateway"""
HELP = (
    ("/recall QUESTION", "search the memory"),
    ("/forget ID", "remove an item for good"),
    ("/status", "show model calls, tokens and the size of the memory"),
    ("/quit", "end the session, as Ctrl-D does"),
)
MAX_CALL_CHARACTERS = 200


@memory_command(
    "chat",
    examples=(
        "engrain chat --model anthropic:claude-sonnet-4-5",
        "engrain chat --model ollama:llama3.2 --session monday",
        "echo 'What do I like?' | engrain chat --json",
    ),
    prints="Each answer; tool calls and token counts go to stderr. With --json, JSON Lines: one answer a line, then "
    "the session and its summary.",
)
@click.option(
    "--model", envvar=MODEL_VARIABLE, metavar="NAME", help=f"The model that answers; default: {MODEL_VARIABLE}."
)
@click.option("--url", metavar="URL", help="Address of the model's server, if not the default.")
@click.option("--session", metavar="NAME", help="Continue this session, or start one of this name.")
@click.option("--system", metavar="TEXT", default="", help="The system prompt.")
def chat(cli: CommandContext, model: str | None, url: str | None, session: str | None, system: str) -> None:
    """Talk with an agent that uses this memory.

    The agent recalls before it answers, and remembers the conversation. Each line is a message; /help lists the
    commands. Ctrl-C stops an answer, not the session.
    """
    if not model:
        raise ConfigError(NO_MODEL)
    from engrain.agent.agent import AgentWithMemory
    from engrain.providers.chat import open_model

    chat_model = open_model(model, url)
    with cli.open_memory(create=True, embed_first="hello", background=True) as memory:
        chat = Chat(cli, memory)
        opened = memory.start_session(session)
        options: dict[str, Any] = {"session": opened.session, "system": system, "memory_tools": True}
        chat.agent = AgentWithMemory(memory, chat_model, on_event=chat.show_event, **options)
        chat.note(f"{model} in session {opened.session}. /help lists the commands.", interactive_only=True)
        try:
            chat.run()
        finally:
            chat.end()
    if chat.failed and not sys.stdin.isatty():
        click.get_current_context().exit(1)


@dataclass
class Chat:
    """A conversation at the terminal, or through a pipe."""

    cli: CommandContext
    memory: Memory
    agent: AgentWithMemory = field(init=False)
    failed: bool = False
    open_line: bool = False  # a piece of an answer was printed without its end

    def run(self) -> None:
        commands: dict[str, Callable[[str], None]] = {
            "/recall": self._recall, "/forget": self._forget, "/status": self._status, "/help": self._help,
        }  # fmt: skip
        for line in _read_lines():
            word, _, rest = line.partition(" ")
            if word in ("/quit", "/exit"):
                return
            try:
                if word.startswith("/"):
                    commands.get(word, self._reject)(rest.strip())
                else:
                    self._show_reply(self._ask_agent(line))
            except EngrainError as error:
                self._fail(error)
            except KeyboardInterrupt:
                self.note("Stopped. Your message is saved; /quit ends the session.")

    def _ask_agent(self, line: str) -> AgentReply:
        from engrain.providers.http import on_retry

        before = on_retry.set(lambda sentence: self.note(f"  {sentence}"))
        try:
            return self.agent.run(line)
        finally:
            on_retry.reset(before)

    def show_event(self, event: AgentEvent) -> None:
        """Print the pieces of the answer as they come, and the calls of tools."""
        from engrain.agent.results import CallResult, TextDelta

        if isinstance(event, TextDelta) and not self.cli.json:
            click.echo(escape(event.text), nl=False)
            self.open_line = not event.text.endswith("\n")
        elif isinstance(event, CallResult):
            self.show_call(event)

    def _end_line(self) -> None:
        if self.open_line:
            click.echo()
            self.open_line = False

    def show_call(self, call: CallResult) -> None:
        arguments = ", ".join(f"{name}={value!r}" for name, value in call.arguments.items())
        shown, result = (shorten_line(text, MAX_CALL_CHARACTERS) for text in (arguments, call.result))
        mark = "✗" if call.failed else "→"
        self.note(f"  {call.tool}({shown}) {mark} {result}")

    def note(self, text: str, interactive_only: bool = False) -> None:
        """Print a note to stderr, unless the output is JSON."""
        if not self.cli.json and not (interactive_only and not sys.stdin.isatty()):
            self._end_line()
            click.echo(dim(escape(text)), err=True)

    def end(self) -> None:
        closing = self.memory.end_session()
        if closing is None:
            return
        summary = closing.summary
        if self.cli.json:
            click.echo(to_json_line({"session": closing.session, "summary": summary, "kept": closing.kept}))
            return
        where = (
            f"Its summary: {self.cli.format_command('get', summary.id)}"
            if summary
            else "There was nothing to summarize."
        )
        self.note(f"Session {closing.session} has ended. {where}")

    def _show_reply(self, reply: AgentReply) -> None:
        if self.cli.json:
            click.echo(to_json_line(reply))
            return
        self._end_line()
        if not reply.text.strip():
            click.echo(dim("(no answer)"))
        stopped = "" if reply.stopped == "end" else f" · stopped: {reply.stopped}"
        steps = count_noun(reply.steps, "step")
        self.note(f"  {steps} · {reply.tokens_in:,} tokens in, {reply.tokens_out:,} out{stopped}")

    def _fail(self, error: EngrainError) -> None:
        self.failed = True
        if self.cli.json:
            click.echo(to_json_line({"error": {"type": type(error).__name__, "message": str(error)}}))
        else:
            print_error(str(error))

    def _recall(self, question: str) -> None:
        found = self.memory.recall(question)
        self._print(found, str(found) or "Nothing relevant is remembered.")

    def _forget(self, id: str) -> None:
        result = self.memory.forget(complete_id(self.memory, id))
        self._print(result, f"Forgot {count_noun(len(result.ids), 'item')}." if result else "There is no such item.")

    def _status(self, _: str) -> None:
        spent, memory = self.agent.status(), self.memory.store.status(self.memory.scope)
        rows = [("model", str(spent["name"])), ("calls", f"{spent['calls']:,}, of which {spent['failures']:,} failed")]
        rows += [("tokens", f"{spent['tokens_in']:,} in, {spent['tokens_out']:,} out")]
        rows += [("last error", spent["last_error"])] if spent["last_error"] else []
        rows += [("session", self.memory.conversation.session), ("memory", count_noun(memory.items, "item"))]
        self._print({"agent": spent, "memory": memory}, "\n".join(format_table(rows)), styled=True)

    def _help(self, _: str) -> None:
        self._print(dict(HELP), "\n".join(format_table(HELP)), styled=True)

    def _reject(self, _: str) -> None:
        raise UnknownKey("unknown command: /help lists the commands.")

    def _print(self, value: Any, text: str, styled: bool = False) -> None:
        click.echo(to_json_line(value) if self.cli.json else text if styled else escape(text))


def _read_lines() -> Iterator[str]:
    """The typed or piped lines, without empty ones."""
    if sys.stdin.isatty():
        with suppress(ImportError):
            import readline  # noqa: F401  # makes the arrow keys work
    while True:
        try:
            line = input("\n> ") if sys.stdin.isatty() else sys.stdin.readline()
        except (EOFError, KeyboardInterrupt):
            click.echo(err=True)
            return
        if not line and not sys.stdin.isatty():
            return
        if line.strip():
            yield line.strip()
