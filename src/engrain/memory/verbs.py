"""The verb of each route: its function, its parameters and the type of its value, as server and client use them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, ClassVar

from engrain.client.values import load_public_names
from engrain.core.http_routes import SCOPE_HEADERS, Route
from engrain.memory.memory import Memory
from engrain.memory.store import Store
from engrain.tasks.admin import Tasks
from engrain.tiers.conversation import ConversationMemory
from engrain.tiers.episodic import EpisodicMemory
from engrain.tiers.procedural import ProceduralMemory
from engrain.tiers.scoped_working import ScopedWorkingMemory
from engrain.tiers.semantic import Relations, SemanticMemory, Slots
from engrain.tiers.sessions import Sessions

PARTS: Mapping[str, type] = {
    "slots": Slots,
    "relations": Relations,
    "working": ScopedWorkingMemory,
    "conversation": ConversationMemory,
    "episodic": EpisodicMemory,
    "semantic": SemanticMemory,
    "procedural": ProceduralMemory,
    "sessions": Sessions,
    "tasks": Tasks,
    "store": Store,
}
# Parameters that a request cannot give: a callback, and the id that the header has.
_NOT_ON_THE_WIRE = ("self", "progress", "request_id")


class Verb:
    """The function of a route and its parameters."""

    owners: ClassVar[Mapping[str, type]] = {"": Memory, **PARTS}

    def __init__(self, route: Route) -> None:
        self.route = route
        self.part, _, self.name = route.verb.rpartition(".")
        found: Any = inspect.getattr_static(self.owners[self.part], self.name)
        self.is_property = isinstance(found, property)
        self.function: Callable[..., Any] = found.fget if self.is_property else found

    @cached_property
    def parameters(self) -> dict[str, inspect.Parameter]:
        """The parameters that a request gives, by name: all but those of the path."""
        in_path = {self.route.renamed.get(name, name) for name in self.route.path_names}
        hidden = {*in_path, *_NOT_ON_THE_WIRE, *self.route.without, *self.from_scope}
        return {name: parameter for name, parameter in self.signature.items() if name not in hidden}

    @cached_property
    def from_scope(self) -> tuple[str, ...]:
        """The parameters that the caller's scope gives: those of a verb of the store about one owner."""
        if self.part != "store" or self.route.whole_store:
            return ()
        return tuple(part for part in SCOPE_HEADERS if part in self.signature)

    @property
    def takes_request_id(self) -> bool:
        return "request_id" in self.signature

    @cached_property
    def path_parameters(self) -> Mapping[str, str]:
        """The verb's parameter for each value in the path; "" for the session that a conversation is of."""
        renamed = {name: self.route.renamed.get(name, name) for name in self.route.path_names}
        return {name: parameter if parameter in self.signature else "" for name, parameter in renamed.items()}

    @cached_property
    def returns(self) -> Any:
        """The type of the value, for the schema of the answer."""
        module = vars(inspect.getmodule(inspect.unwrap(self.function)))
        names, found = load_public_names(), inspect.get_annotations(self.function).get("return")
        return eval(found, {**names, **module}) if isinstance(found, str) else found  # our own source

    @cached_property
    def signature(self) -> Mapping[str, inspect.Parameter]:
        return inspect.signature(self.function).parameters
