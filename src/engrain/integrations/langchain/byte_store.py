"""EngrainByteStore: bytes by key in a memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from langchain_core.stores import ByteStore

from engrain.core.model.records import RecordDraft, RecordKey
from engrain.core.validation import check_key
from engrain.integrations.memory_owners import AnyMemory, open_memory
from engrain.integrations.record_reader import iterate_keys

SPACE = "langchain bytes"


class EngrainByteStore(ByteStore):
    """A key-value store in the memory of one user, such as for CacheBackedEmbeddings.

    store = EngrainByteStore(engrain_store.memory(user="ana"), name="embeddings")
    """

    def __init__(self, memory: AnyMemory, *, name: str = "bytes") -> None:
        self._records, self._name = open_memory(memory).records, check_key(name, "name")

    def mget(self, keys: Sequence[str]) -> list[bytes | None]:
        found = {one.key: one.body for one in self._records.read(SPACE, [self._key(key) for key in keys])}
        return [found.get(self._key(key)) for key in keys]

    def mset(self, key_value_pairs: Sequence[tuple[str, bytes]]) -> None:
        """Write all pairs in one transaction."""
        self._records.write(SPACE, [RecordDraft(self._key(key), value) for key, value in key_value_pairs])

    def mdelete(self, keys: Sequence[str]) -> None:
        self._records.write(SPACE, drops=[self._key(key) for key in keys])

    def yield_keys(self, *, prefix: str | None = None) -> Iterator[str]:
        keys = iterate_keys(self._records, SPACE, (self._name,))
        return (key[1] for key in keys if key[1].startswith(prefix or ""))

    def _key(self, key: str) -> RecordKey:
        return self._name, key
