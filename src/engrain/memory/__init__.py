"""The public face: Store is the opened database of a process, Memory is one scope's view of it."""

from engrain.memory.memory import Memory
from engrain.memory.session_handle import Session
from engrain.memory.store import Store

__all__ = ["Memory", "Session", "Store"]
