"""An introduction of one sentence gives a fact for each of its clauses, so that each can change alone."""

from __future__ import annotations

from pathlib import Path

from engrain import Store

NAME, ORIGIN, CITY, JOB = "user.name", "user.origin", "user.city", "user.job"
INTRODUCTIONS = {
    "ich bin der Jonas, komme ursprünglich aus Kiel, wohne aber seit 2019 in Leipzig und arbeite als Krankenpfleger "
    "am Uniklinikum": {NAME, ORIGIN, CITY, JOB},
    "hi I'm Jonas, originally from Kiel but living in Leeds since 2019 and working as a nurse at St James": {
        NAME,
        ORIGIN,
        CITY,
        JOB,
    },
    "I'm Tom, 34, live in Bristol, work as a nurse": {NAME, CITY, JOB},
    "Ich heiße Petra, bin Lehrerin und wohne in Ulm": {NAME, CITY, JOB},
    "me llamo Iker, vivo en Bilbao y trabajo como electricista": {NAME, CITY, JOB},
    # Of somebody else.
    "I'm Ana and my brother, living in Rome, works as a cook": {NAME},
    "my sister Jess, living in Cardiff, works as a nurse": set(),
}


def test_each_clause_of_an_introduction_fills_its_slot(tmp_path: Path) -> None:
    for number, (text, slots) in enumerate(INTRODUCTIONS.items()):
        with Store(tmp_path / f"{number}.db") as store:
            memory = store.memory(user="ana")
            memory.add_message("user", text)
            assert {item.slot for item in memory.list({"kind": "fact"}) if item.slot} == slots, text
