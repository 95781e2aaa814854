"""Write a software bill of materials (CycloneDX 1.6, JSON) of what `pip install engrain` brings along.

Components come from requirements/core.txt with the hashes of their files, and from files in this repository that others
wrote: the weights of the embedder and the scripts of the page.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
_PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^ ;\\]+)(?: ; ([^\\]+))?", re.M)
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")
# Files that others wrote, by the component that they belong to.
BUNDLED = {
    "all-MiniLM-L6-v2": ("packages/engrain-minilm/src", (".onnx", ".txt")),
    "scripts of the page": ("src/engrain/ui/static/vendor", (".js", ".css")),
}


def read_version() -> str:
    found = re.search(r'__version__ = "([^"]+)"', (ROOT / "src/engrain/__init__.py").read_text())
    assert found, "src/engrain/__init__.py names no version"
    return found[1]


def list_packages(lock: str) -> Iterator[dict[str, Any]]:
    pins = list(_PIN.finditer(lock))
    for pin, following in zip(pins, [*pins[1:], None], strict=True):
        name, version, marker = pin.groups()
        hashes = _HASH.findall(lock, pin.end(), following.start() if following else len(lock))
        component = {"type": "library", "name": name, "version": version, "purl": f"pkg:pypi/{name}@{version}"}
        properties = [{"name": "engrain:sha256-of-a-file", "value": one} for one in hashes]
        marked = [{"name": "engrain:marker", "value": marker.strip()}] if marker else []
        yield {"bom-ref": component["purl"], **component, "properties": [*marked, *properties]}


def list_bundled() -> Iterator[dict[str, Any]]:
    for owner, (folder, ends) in BUNDLED.items():
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in ends:
                digest = hashlib.sha256(path.read_bytes()).hexdigest()
                name = str(path.relative_to(ROOT))
                yield {
                    "bom-ref": name, "type": "file", "group": owner, "name": name,
                    "hashes": [{"alg": "SHA-256", "content": digest}],
                }  # fmt: skip


def build_bom() -> dict[str, Any]:
    version = read_version()
    lock = (ROOT / "requirements/core.txt").read_text()
    components = [*list_packages(lock), *list_bundled()]
    content = json.dumps(components, sort_keys=True)
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        # The same sources give the same file.
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, content)}",
        "version": 1,
        "metadata": {
            "component": {
                "bom-ref": "engrain", "type": "library", "name": "engrain", "version": version,
                "purl": f"pkg:pypi/engrain@{version}", "licenses": [{"license": {"id": "Apache-2.0"}}],
            }
        },
        "components": components,
        "dependencies": [{"ref": "engrain", "dependsOn": [one["bom-ref"] for one in components]}],
    }  # fmt: skip


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(build_bom(), indent=1) + "\n")
