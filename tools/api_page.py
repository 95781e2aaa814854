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
    "SemanticMemory", "ProceduralMemory", "Sessions", "Tasks", "Mirror",
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
    yield "Made by `tools/api_page.py` from the signatures and docstrings. `from engrain import …` gives each of them."
    functions = [name for name in engrain.__all__ if inspect.isfunction(getattr(engrain, name))]
    errors = [name for name in engrain.__all__ if is_error(getattr(engrain, name))]
    told = {*FACES, *PARTS, *ASYNC, *OTHERS, *functions, *errors}
    values = [name for name in engrain.__all__ if name not in told]
    groups = (
        ("Store, Memory, Session", FACES),
        ("The parts of a Memory", PARTS),
        ("Tasks, agents, receipts", OTHERS),
        ("Awaited", ASYNC),
        ("Functions", functions),
    )
    for title, names in groups:
        yield from ("", f"## {title}")
        for name in names:
            yield from entry(name, getattr(engrain, name))
    yield from ("", "## Values", "")
    for name in values:
        yield f"- **{name}**{fields_of(getattr(engrain, name))}: {first_sentence(getattr(engrain, name))}"
    yield from ("", "## Errors and warnings", "")
    for name in errors:
        yield f"- **{name}** ({getattr(engrain, name).__base__.__name__}): {first_sentence(getattr(engrain, name))}"


def entry(name: str, value: Any) -> Iterator[str]:
    yield from ("", f"### {name}", "")
    if inspect.isfunction(value):
        yield from (f"`{name}{signature(value)}`", "", paragraph(value))
        return
    yield from (f"`{name}{signature(value.__init__)}`", "", paragraph(value))
    verbs = list(members(value))
    if verbs:
        yield ""
    for verb, found in verbs:
        if isinstance(found, property):
            yield f"- `.{verb}`: {first_sentence(found)}"
        else:
            yield f"- `.{verb}{signature(found)}`: {first_sentence(found)}"


def members(value: type) -> Iterator[tuple[str, Any]]:
    for base in reversed(value.__mro__[:-1]):
        if not base.__module__.startswith("engrain"):
            continue
        for name, found in vars(base).items():
            plain = found.__func__ if isinstance(found, (staticmethod, classmethod)) else found
            if not name.startswith("_") and (inspect.isfunction(plain) or isinstance(plain, property)):
                yield name, plain


def signature(function: Any) -> str:
    try:
        found = inspect.signature(function)
    except (TypeError, ValueError):
        return "(…)"
    shown = [one for name, one in found.parameters.items() if name not in ("self", "cls")]
    text = str(found.replace(parameters=shown))
    text = re.sub(r"'([^']*)'", r"\1", text) if "'" in text else text
    text = re.sub(r"<function (\w+) at 0x\w+>", r"\1", text)
    return re.sub(r" at 0x\w+", "", text).replace("builtins.", "").removesuffix(" -> None")


def paragraph(value: Any) -> str:
    doc = inspect.getdoc(value) or ""
    return " ".join(doc.partition("\n\n")[0].split())


def first_sentence(value: Any) -> str:
    text = paragraph(value) if not isinstance(value, (dict, str)) else ""
    if not text or text.startswith(("dict(", "str(")):
        return "a constant."
    found = re.match(r".*?[.:](?=\s+[A-Z`]|$)", text)
    return found[0] if found else text


def fields_of(value: Any) -> str:
    names = getattr(value, "__dataclass_fields__", None)
    return f" ({', '.join(names)})" if names else ""


def is_error(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, BaseException)


if __name__ == "__main__":
    sys.exit(main())
