"""Hooks of the documentation site: pages from the whole repository, navigation and llms.txt from docs/README.md."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
# Pages that stand outside docs/, and where the site has them.
OUTSIDE = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "bench/README.md": "bench.md",
}
PLACES = {**OUTSIDE, "docs/README.md": "index.md", "docs/decisions": "decisions/index.md"}
HOMES = {page: source for source, page in OUTSIDE.items()}
SECTION = re.compile(r"^## (.+)$")
GROUP = re.compile(r"^(\w[\w ]+):$")
ENTRY = re.compile(r"^- \[(.+?)\]\((.+?)\): (.*)$")
LINK = re.compile(r"(!?)\[([^\]\n]+)\]\(([^)\s]+)\)")
SUMMARY = "A memory for AI agents that stays: five kinds of memory behind one recall(), and tasks that resume."

Entry = tuple[str, str, str]  # title, page, description


def read_list() -> dict[str, dict[str, list[Entry]]]:
    """Return the pages that docs/README.md lists, by section and group."""
    found: dict[str, dict[str, list[Entry]]] = {}
    section = group = ""
    # A description goes on in indented lines.
    for line in re.sub(r"\n  +", " ", (ROOT / "docs" / "README.md").read_text()).splitlines():
        if match := SECTION.match(line):
            section, group = match[1], ""
        elif match := GROUP.match(line):
            group = match[1]
        elif match := ENTRY.match(line):
            page = find_page(posixpath.normpath(f"docs/{match[2]}"))
            found.setdefault(section, {}).setdefault(group, []).append((match[1], page, match[3]))
    return found


def find_page(path: str) -> str:
    """Return the page of the site for a path of the repository, or "" if it has none."""
    if path in PLACES:
        return PLACES[path]
    return path.removeprefix("docs/") if path.startswith("docs/") else ""


def on_config(config: Any) -> Any:
    nav: list[Any] = [{"Home": "index.md"}]
    for section, groups in read_list().items():
        pages: list[Any] = []
        for group, entries in groups.items():
            listed = [{title: page} for title, page, _ in entries]
            pages += [{group: listed}] if group else listed
        nav.append({section: pages})
    project = {"Changes": "changelog.md", "Contributing": "contributing.md", "Benchmarks": "bench.md"}
    nav.append({"Project": [{title: page} for title, page in project.items()]})
    config.nav = nav
    return config


def on_files(files: Files, config: Any) -> Files:
    for source, page in OUTSIDE.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text()))
    decisions = sorted((ROOT / "docs" / "decisions").glob("*.md"))
    titles = [f"- [{path.read_text().splitlines()[0].lstrip('# ')}]({path.name})" for path in decisions]
    files.append(File.generated(config, "decisions/index.md", content="\n".join(["# Decisions", "", *titles, ""])))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Turn links between files of the repository into links between pages; a file without a page keeps its name."""
    here = page.file.src_uri
    source = posixpath.dirname(HOMES.get(here, f"docs/{here}"))

    def point(match: re.Match[str]) -> str:
        picture, text, target = match.groups()
        path, _, anchor = target.partition("#")
        if "://" in target or not path:
            return match[0]
        found = find_page(posixpath.normpath(posixpath.join(source, path)))
        if not found:
            return text
        # The list of pages is the navigation; its sections are no headings of the home page.
        anchor = f"#{anchor}" if anchor and found != "index.md" else ""
        return f"{picture}[{text}]({posixpath.relpath(found, posixpath.dirname(here) or '.')}{anchor})"

    return LINK.sub(point, markdown)


def on_post_build(config: Any) -> None:
    """Write llms.txt, the list of pages for language models, and llms-full.txt, their text."""
    lines, texts = ["# engrain", "", f"> {SUMMARY}"], [(ROOT / "README.md").read_text()]
    for section, groups in read_list().items():
        lines += ["", f"## {section}", ""]
        for title, page, description in (entry for entries in groups.values() for entry in entries):
            lines.append(f"- [{title}]({page.removesuffix('.md')}.html): {description}")
            source = ROOT / HOMES.get(page, f"docs/{page}")
            if source.is_file():
                texts.append(source.read_text())
    site = Path(config.site_dir)
    (site / "llms.txt").write_text("\n".join([*lines, ""]))
    (site / "llms-full.txt").write_text("\n\n".join(texts))
