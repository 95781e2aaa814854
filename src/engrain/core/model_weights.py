"""Read the weights of the small models that come with the package."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

Weights = Mapping[str, Any]
STEP = "_step"  # behind the name of a table in whole numbers: the size of one step of it


def find_weights(file: str, package: str = "engrain.core.data") -> Path:
    return Path(str(resources.files(package) / file))


@cache
def load_weights(file: str, package: str = "engrain.core.data") -> Weights:
    """Return the arrays of a file, numbers as float32."""
    import numpy as np

    with np.load(find_weights(file, package), allow_pickle=False) as read:
        arrays = {name: read[name] for name in read.files if not name.endswith(STEP)}
        steps = {name: read[name + STEP] for name in arrays if name + STEP in read}
    numbers = {name: one for name, one in arrays.items() if one.dtype.kind != "U"}
    return arrays | {name: one.astype(np.float32) * steps.get(name, np.float32(1)) for name, one in numbers.items()}


def multiply(rows: Any, table: Any) -> Any:
    """Multiply each row with a table, on this thread alone.

    A product of two matrices wakes the threads of BLAS. They spin while they wait for more work: 8 ms of CPU a message.
    """
    import numpy as np

    return np.stack([row @ table for row in rows])


def pack_table(name: str, table: Any) -> dict[str, Any]:
    """Return a large table as a training script saves it: in whole numbers of one byte."""
    import numpy as np

    step = np.float32(np.abs(table).max() / 127)
    return {name: np.round(table / step).astype(np.int8), name + STEP: step}
