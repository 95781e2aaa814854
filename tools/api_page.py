"""Write docs/reference/api.md from signatures and docstrings: python tools/api_page.py [--check]."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import engrain

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "api.md"
FACES = ("Store", "Memory", "Session")
PARTS = (
    "Slots", "Relations", "ScopedWorkingMemory", "WorkingMemory", "ConversationMemory", "EpisodicMemory",
    "SemanticMemory", "ProceduralMemory", "Sessions", "ScopedRecords", "Tasks", "Mirror",
)  # fmt: skip
ASYNC = ("AsyncStore", "AsyncMemory", "AsyncSession", "AsyncAgentWithMemory", "AsyncRun")
OTHERS = ("Run", "ResumableAgent", "AgentWithMemory", "Tool", "Receipt")


def main() -> int:
    text = "\n".join(page()) + "\n"
    if "--check" in sys.argv:
        stale = not PAGE.exists() or PAGE.read_text() != text
        if stale:
            print("docs/reference/api.md is stale. Run: python tools/api_page.py", file=sys.stderr)  # noqa: T201
        return int(stale)
    PAGE.write_text(text)
    return 0


def page() -> Iterator[str]:
    yield "# Every public name"
    yield ""
    yield "Import each of them from `engrain`. `tools/api_page.py` makes this page from signatures and docstrings."
    functions = [name for name in engrain.__all__ if inspect.isfunction(getattr(engrain, name))]
    errors = [name for name in engrain.__all__ if is_error(getattr(engrain, name))]
    listed = {*FACES, *PARTS, *ASYNC, *OTHERS, *functions, *errors}
    values = [name for name in engrain.__all__ if name not in listed]
    groups = (
        ("Store, Memory, Session", FACES),
        ("The parts of a Memory", PARTS),
        ("Tasks, agents, receipts", OTHERS),
        ("Async", ASYNC),
        ("Functions", functions),
    )
    for title, names in groups:
        yield from ("", f"## {title}")
        for name in names:
            yield from entry(name, getattr(engrain, name))
    yield from ("", "## Values", "")
    for name in values:
        yield described(f"- **{name}**{fields_of(getattr(engrain, name))}", getattr(engrain, name))
    yield from ("", "## Errors and warnings", "")
    for name in errors:
        yield f"- **{name}** ({getattr(engrain, name).__base__.__name__}): {first_sentence(getattr(engrain, name))}"


def entry(name: str, value: Any) -> Iterator[str]:
    yield from ("", f"### {name}", "")
    if inspect.isfunction(value):
        yield from (f"`{name}{signature(value)}`", "", paragraph(value))
        return
    yield from (f"`{name}{signature(value.__init__)}`", "", paragraph(value))
    plain = getattr(engrain, name.removeprefix("Async"), None) if name in ASYNC else None
    known = {verb for verb, _ in members(plain)} if plain is not None else set()
    verbs = [(verb, found) for verb, found in members(value) if verb not in known]
    if known:
        yield from ("", f"It has the methods of `{plain.__name__}`, awaited.")
    if verbs:
        yield ""
    for verb, found in verbs:
        yield described(f"- `.{verb}{'' if isinstance(found, property) else signature(found)}`", found)


def members(value: type) -> Iterator[tuple[str, Any]]:
    found: dict[str, Any] = {}
    for base in reversed(value.__mro__[:-1]):
        if base.__module__.startswith("engrain"):
            found.update(vars(base))
    for name, one in found.items():
        plain = one.__func__ if isinstance(one, (staticmethod, classmethod)) else one
        if name.startswith("_") or paragraph(plain).startswith("Internal: "):
            continue
        if inspect.isfunction(plain) or isinstance(plain, property):
            yield name, plain


def signature(function: Any) -> str:
    try:
        found = inspect.signature(function)
    except (TypeError, ValueError):
        return "(…)"
    shown = [one for name, one in found.parameters.items() if name not in ("self", "cls")]
    text = str(found.replace(parameters=shown))
    text = re.sub(r"""(: |-> )(?:'([^']*)'|"([^"]*)")""", lambda one: one[1] + (one[2] or one[3]), text)
    text = re.sub(r"<function (\w+) at 0x\w+>", r"\1", text)
    return re.sub(r" at 0x\w+", "", text).replace("builtins.", "").removesuffix(" -> None")


def paragraph(value: Any) -> str:
    doc = inspect.getdoc(value) or ""
    return " ".join(doc.partition("\n\n")[0].split())


def described(name: str, value: Any) -> str:
    """The name, with the first sentence of its docstring if it has one of its own."""
    sentence = first_sentence(value)
    return f"{name}: {sentence}" if sentence else name


def first_sentence(value: Any) -> str:
    if not isinstance(value, (type, property)) and not inspect.isfunction(value):
        return ""
    text = paragraph(value)
    if isinstance(value, type) and text.startswith(f"{value.__name__}("):  # what a dataclass writes by itself
        return ""
    found = re.match(r".*?[.:](?=\s+[A-Z`]|$)", text)
    return found[0] if found else text


def fields_of(value: Any) -> str:
    names = getattr(value, "__dataclass_fields__", None)
    return f" ({', '.join(names)})" if names else ""


def is_error(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, BaseException)


if __name__ == "__main__":
    sys.exit(main())
