"""Sentences about somebody whom the user has introduced are judged as sentences about them."""

from __future__ import annotations

from pathlib import Path

from engrain import Store
from engrain.ingest.known_people import introduces
from engrain.providers.local import LocalEmbedder


def test_a_name_is_introduced_beside_a_word_for_a_person() -> None:
    told = {
        "Frieda": "Meine Tochter heißt Frieda",
        "Emil": "Mein Sohn Emil ist 7",
        "Pip": "we have two cats, Miso and Pip",
        "Sarah": "Sarah is my sister",
        "raj": "my best mate raj works at Sky",
    }
    assert [name for name, text in told.items() if not introduces(text, name)] == []
    other = {"Klavier": "Meine Tochter spielt Klavier", "Adele": "I love the singer Adele", "piano": "she plays piano"}
    assert [name for name, text in other.items() if introduces(text, name)] == []


def test_a_lasting_statement_about_somebody_known_is_kept(tmp_path: Path) -> None:
    lasting = {
        "Meine Tochter heißt Frieda.": "Frieda hat eine Nussallergie",
        "Mein Sohn Emil ist 7": "Emil hat Asthma",
        "our dog is called Biscuit": "Biscuit has a bad heart",
        "mi perro se llama Toby": "Toby solo come pienso de pollo",
    }
    passing = {"my daughter Noor started school": "Noor is asleep", "my brother Tom is 30": "Tom says hi"}
    with Store(tmp_path / "known.db", embedder=LocalEmbedder()) as store:
        kept = []
        for first, later in (lasting | passing).items():
            memory = store.memory(user=first)
            assert memory.add_message("user", first).facts
            kept += [later] if memory.add_message("user", later).facts else []
            nobody = store.memory(user=f"{first} nobody")
            nobody.add_message("user", "hello")
            if first.startswith("our dog"):
                assert not nobody.add_message("user", later).facts
    assert kept == list(lasting.values())
