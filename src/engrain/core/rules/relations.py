"""Find the relation that a statement tells: "Lena works at Acme", "my manager is Priya"."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from importlib import resources

from engrain.core.model.items import Relation
from engrain.core.text.languages import load_languages
from engrain.core.text.tokenizer import fold_entity, hash_term, tokenize

USER_ENTITY = "user"  # the speaker of the conversation, on either side of a relation
MAX_CHARACTERS = 600
MAX_ENTITIES = 8  # of one question
_WRAP = re.compile(r"\n\s*")
_CAPITAL = r"[^\W\d_a-zß-öø-ÿ]"
_NAME = rf"{_CAPITAL}[\w&.-]*\w(?: (?:(?:von|van|de|del|da|la|of|&) )?{_CAPITAL}[\w&.-]*\w){{0,2}}"
_THING = rf"(?:the |a |an |der |die |das |el |la |le |l')?(?:{_NAME}|[\w-]+(?: [\w-]+){{0,2}}(?=[,.;!?]|$))"
_OWN = re.compile(r"\b(?:my|our|i|mein\w*|unser\w*|ich|mi|mis|nuestr\w+|mon|ma|mes|notre|nos|je)\b", re.IGNORECASE)
_PLAIN_NAME = re.compile(_NAME)
_POSSESSIVE = re.compile(r"['’]s\b|['’](?=\s|$)")
_ARTICLE = re.compile(r"(?:the|a|an|der|die|das|el|la|le) |l'", re.IGNORECASE)


def find_relation(text: str, speaker: str | None = None) -> Relation | None:
    """Return the first relation that a statement tells, None if it tells none."""
    part = text[:MAX_CHARACTERS]
    for owner, link in _load_patterns()[0]:
        match = link.search(part)
        if match:
            return Relation(match["subject"], match["relation"].lower(), _ARTICLE.sub("", match["object"], count=1))
        match = owner.search(part)
        if match:
            return Relation(speaker or USER_ENTITY, match["role"].lower(), match["object"])
    return None


def excludes(new: Relation, old: Relation) -> bool:
    """Tell if the newer relation ends the older: one subject has only one employer, home or spouse."""
    groups = _load_patterns()[1]
    same = fold_entity(new.subject) == fold_entity(old.subject) and fold_entity(new.object) != fold_entity(old.object)
    return same and new.relation in groups and groups.get(new.relation) == groups.get(old.relation)


def list_entities(query: str) -> list[str]:
    """Return the names in a question that may be entities, folded. In lower-case questions each word may be one."""
    part = _POSSESSIVE.sub("", query[:MAX_CHARACTERS])
    stop = load_languages().stop_terms
    if part == part.lower():
        names = [word for word in tokenize(part) if hash_term(word) not in stop]
    else:
        found = [match[0] for match in _PLAIN_NAME.finditer(part)]
        names = [name for one in found for name in (one, *one.split()) if hash_term(name.lower()) not in stop]
    own = [USER_ENTITY] if _OWN.search(part) else []
    return list(dict.fromkeys(fold_entity(name) for name in (*names, *own)))[:MAX_ENTITIES]


@cache
def _load_patterns() -> tuple[tuple[tuple[re.Pattern[str], re.Pattern[str]], ...], dict[str, str]]:
    file = resources.files("engrain.core") / "data" / "relations.toml"
    tables = tomllib.loads(file.read_text("utf-8"))
    sole = tables.pop("sole")

    def build(pattern: str) -> re.Pattern[str]:
        whole = _WRAP.sub("", pattern).replace("{name}", _NAME).replace("{thing}", _THING)
        return re.compile(rf"(?<!\w)(?:{whole})")

    patterns = tuple((build(table["owner"]), build(table["link"])) for table in tables.values())
    return patterns, {relation: group for group, some in sole.items() for relation in some.split("|")}
