"""Write facts or documents as a folder that the recall bench reads.

Run: python bench/capture/pack.py facts FOLDER
"""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path

HERE = Path(__file__).parent


def pack(name: str, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    records = [json.loads(line) for line in (HERE / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]
    for kind, file in (("doc", "docs.jsonl.gz"), ("question", "questions.jsonl.gz")):
        with gzip.open(folder / file, "wt", encoding="utf-8") as out:
            for record in records:
                if record["type"] == kind:
                    fields = {key: value for key, value in record.items() if key != "type"}
                    out.write(json.dumps(fields, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    pack(sys.argv[1], Path(sys.argv[2]))
