"""Write a set in the form that a command reads.

python bench/capture/pack.py facts FOLDER           a folder for `engrain bench recall`; also: documents
python bench/capture/pack.py changes-dev FILE       a script for `engrain evaluate`; also: sentences-dev
"""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
Record = dict[str, Any]


def pack_folder(records: list[Record], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for kind, file in (("doc", "docs.jsonl.gz"), ("question", "questions.jsonl.gz")):
        with gzip.open(folder / file, "wt", encoding="utf-8") as out:
            for record in records:
                if record["type"] == kind:
                    fields = {key: value for key, value in record.items() if key != "type"}
                    out.write(json.dumps(fields, ensure_ascii=False) + "\n")


def script_sentence(record: Record) -> Iterator[Record]:
    keeps = [{"text": record["text"]}] if record["keep"] else []
    yield {"type": "message", "id": record["id"], "text": record["text"], "keeps": keeps}


def script_change(record: Record) -> Iterator[Record]:
    both = record["expect"] == "both"
    for number, (text, at) in enumerate(((record["first"], "2026-01-10"), (record["later"], "2026-06-10"))):
        yield {"type": "message", "session": f"{record['id']}-{number}", "text": text, "at": at,
               "keeps": [{"id": f"{record['id']}-{number}", "text": text}]}  # fmt: skip
    old, new = record["old_value"], record["new_value"]
    yield {"type": "facts", "id": record["id"], "true": [old, new] if both else [new], "false": [] if both else [old]}
    answers = [old, new] if both else [new]
    yield {"type": "question", "id": record["id"], "text": record["question"], "answers": answers,
           "stale": [] if both else [old]}  # fmt: skip


SCRIPTS: dict[str, Callable[[Record], Iterator[Record]]] = {
    "sentences": script_sentence,
    "changes": script_change,
}


def main(name: str, out: Path) -> None:
    records = [json.loads(line) for line in (HERE / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]
    write = SCRIPTS.get(name.partition("-")[0])
    if write is None:
        pack_folder(records, out)
        return
    lines = []
    for record in records:
        if record.get("type") != "note":
            lines += [{"type": "memory", "id": record["id"]}, *write(record)]
    out.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
