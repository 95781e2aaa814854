"""A message that asks to forget something cuts the one thing that it means, and nothing if that is uncertain."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from engrain import Memory
from engrain.providers.local import LocalEmbedder


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    with Memory(tmp_path / "a.db", user="ana", embedder=LocalEmbedder(), background=False) as opened:
        opened.start_session("one")
        yield opened


def tell(memory: Memory, *texts: str) -> list[str]:
    return [memory.add_message("user", text).id for text in texts]


def list_left(memory: Memory, ids: list[str], texts: tuple[str, ...]) -> list[bool]:
    """Tell for each message whether its words are still there."""
    items = [memory.get(id) for id in ids]
    return [item is not None and text in item.text for item, text in zip(items, texts, strict=True)]


@pytest.mark.parametrize(
    ("said", "request_", "left"),
    [
        # by kind, in other words
        (("I live at 31 Larch Grove, Telford", "I cycle to work"), "erase my address pls", [False, True]),
        (("ich verdien 2900 netto", "mein Hund heißt Anton"), "nimm mein Gehalt wieder raus", [False, True]),
        (("mi móvil es el 611 203 998", "me gusta el pádel"), "borra mi teléfono de tus notas", [False, True]),
        (("je suis née le 9 août 1966", "j'ai un potager"), "Merci d'effacer ma date de naissance", [False, True]),
        # the matter is two clauses or two sentences away from the order
        (
            ("Soy perito agrónomo.", "Me divorcié en 2022."),
            "Elimine, por favor, el dato sobre mi divorcio.",
            [True, False],
        ),
        (("we start IVF in May", "I fix bikes"), "remember the IVF thing? please don't. take it out", [False, True]),
        # by a part of a number
        (("office line is 089 4471 220", "privat: 0151 2290 8813"), "die 0151er Nummer bitte löschen", [True, False]),
        # the speaker's own, not that of another
        (("my sister's getting divorced", "I'm divorced since May"), "forget that I'm divorced", [True, False]),
        # all that was said of somebody is one thing, with what goes on about them
        (
            ("Gemma is my ex", "she kept the house in Fareham", "I coach rowing"),
            "I want you to wipe everything about Gemma",
            [False, False, True],
        ),
        # the message before
        (("I teach maths", "one of the TAs told me she's pregnant"), "oh god forget that last bit", [True, False]),
    ],
)
def test_one_thing_that_is_meant_is_cut(memory: Memory, said: tuple[str, ...], request_: str, left: list[bool]) -> None:
    ids = tell(memory, *said)
    memory.add_message("user", request_)
    assert list_left(memory, ids, said) == left


@pytest.mark.parametrize(
    "said",
    [
        "The billing service is written in Go.",
        "my engagement ring was his grandmother's, I never take it off",
    ],
)
def test_a_statement_is_no_request_and_stays(memory: Memory, said: str) -> None:
    message = memory.add_message("user", said)
    assert message.facts
    assert not message.forgotten
    assert not message.proposed


@pytest.mark.parametrize(
    ("said", "request_"),
    [
        (("my boss is Ulla", "I'm a joiner"), "I might ask you to delete the stuff about my boss one day"),
        (("my doctor is Dr Bloom", "I swim"), "I keep forgetting the name of my doctor"),
        (("I'm vegetarian", "I live in Ely"), "oh sure, just forget I'm vegetarian again, brilliant"),
        (("I have three kids", "I work nights"), "with three kids you can forget sleep"),
        (("my number is 555 0101", "I run a kennel"), 'a guest wrote: "please forget my number"'),
        (("The yarn shop's number is 01595 555 014", "I knit"), "please forget my phone number"),
        (("my mother's name is Ivy", "I've a kayak"), "please forget my stepmother's name"),
        (("soy maestra", "tengo una moto"), "borra lo de mi operación"),
        # only a part of the matter's words, or only its kind, and not near in meaning
        (("my first name is Ottoline", "I'm from Cork"), "take my middle name off your list"),
        (("the kids go to the Montessori", "I bake challah on Fridays"), "forget the kids' names"),
        (("meine Adresse ist Torweg 1", "ich bin neu hier"), "nein, meine Adresse nicht löschen!"),
    ],
)
def test_nothing_is_cut_where_nothing_is_asked_or_nothing_fits(
    memory: Memory, said: tuple[str, ...], request_: str
) -> None:
    ids = tell(memory, *said)
    assert memory.add_message("user", request_).forgotten == ()
    assert list_left(memory, ids, said) == [True] * len(said)


NUMBER, FLAT = "my phone number is 07700 900123", "I live at 31 Larch Grove, Telford"


@pytest.mark.parametrize(
    ("said", "request_"),
    [
        # a number, an appointment or an address of another kind
        ((NUMBER, "I like rowing"), "forget my passport number"),
        ((NUMBER, "I like rowing"), "forget my account number"),
        ((NUMBER, "I like rowing"), "delete Tom's number"),
        (("my number is 07700 900123", "I like rowing"), "please forget my insurance number"),
        (("meine Handynummer ist 0151 22908813", "ich rudere gern"), "vergiss meine Kontonummer"),
        (("meine Telefonnummer ist 0151 22908813", "ich rudere gern"), "lösch meine Ausweisnummer bitte"),
        (("mi número de teléfono es 611 203 998", "me gusta remar"), "olvida mi número de pasaporte"),
        (("mi número es el 611 203 998", "me gusta remar"), "borra mi número de cuenta"),
        (("mon numéro est le 06 12 34 56 78", "j'aime ramer"), "oublie mon numéro de passeport"),
        (("mon numéro est le 06 12 34 56 78", "j'aime ramer"), "efface mon numéro de compte"),
        (("my driving test is on the 14th of May", "I play the cello"), "forget my tattoo appointment"),
        (("I've got my driving test booked for Friday", "I row"), "forget my tattoo appointment"),
        (("meine Fahrprüfung ist am 14. Mai", "ich spiele Cello"), "vergiss meinen Tattoo-Termin"),
        (("mi examen de conducir es el viernes", "toco el cello"), "olvida mi cita con el tatuador"),
        (("mon examen de conduite est vendredi", "je chante"), "oublie mon rendez-vous chez le tatoueur"),
        (("my email is tess@home.org", "I row"), "forget my work email"),
        (("mi correo es tess@home.org", "me gusta remar"), "borra mi correo del trabajo"),
        (("mon mail est tess@home.org", "j'aime ramer"), "efface mon mail professionnel"),
        (("meine Mail ist tess@home.org", "ich rudere"), "lösch meine Arbeitsmail"),
        # what was before, not what holds now
        (("I work as a nurse at Leeds General", "I have a cat"), "forget my old job"),
        ((FLAT, "I row"), "forget my old address"),
        (("ich arbeite als Krankenpfleger in Ulm", "ich rudere"), "vergiss meinen alten Job"),
        (("meine Adresse ist Torweg 1 in Ulm", "ich rudere"), "lösch meine alte Adresse"),
        (("trabajo de enfermera en Vigo", "me gusta remar"), "olvida mi antiguo trabajo"),
        (("je travaille comme infirmière à Lyon", "j'aime ramer"), "oublie mon ancien travail"),
        # taken back
        ((FLAT, "I row"), "forget my address… actually no, leave it"),
        ((FLAT, "I row"), "forget my address, never mind, leave it in"),
        ((FLAT, "I row"), "please delete my address - on second thoughts, don't"),
        ((FLAT, "I row"), "delete my address. hmm wait, no, keep it please"),
        ((FLAT, "I row"), "forget my address, no wait"),
        ((NUMBER, "I row"), "delete my phone number, wait no dont"),
        (("I live in Leeds", "I row"), "forget that I live in Leeds, wait no, don't"),
        (("my name is Tess and I live in Leeds", "I row"), "forget my city, scratch that, leave it"),
        (("vivo en la calle Mayor 12", "me gusta remar"), "borra mi dirección, mejor no, déjalo"),
        (("vivo en la calle Mayor 12", "me gusta remar"), "olvida mi dirección... no, espera, déjala"),
        (("meine Adresse ist Torweg 1", "ich rudere"), "vergiss meine Adresse, ach nein, lass sie drin"),
        (("meine Adresse ist Torweg 1", "ich rudere"), "Lösch meine Adresse. Quatsch, doch nicht, behalt sie."),
        (("j'habite 12 rue des Lilas à Lyon", "j'aime ramer"), "efface mon adresse, en fait non, laisse"),
        (("j'habite 12 rue des Lilas à Lyon", "j'aime ramer"), "oublie mon adresse. Non attends, garde-la"),
        # said by others
        ((NUMBER, "I run a kennel"), "my mate said delete my phone number"),
        ((NUMBER, "I run a kennel"), "the email says please delete my phone number"),
        # perhaps another thing is meant
        ((FLAT, "my email is tess@home.org"), "forget my address, no wait, I mean my email"),
    ],
)
def test_nothing_is_cut_if_another_thing_is_meant_or_the_request_taken_back(
    memory: Memory, said: tuple[str, ...], request_: str
) -> None:
    ids = tell(memory, *said)
    result = memory.add_message("user", request_)
    assert (result.forgotten, result.facts) == ((), ())
    assert list_left(memory, ids, said) == [True] * len(said)


@pytest.mark.parametrize(
    ("said", "request_", "left"),
    [
        ((NUMBER, "my passport number is 533401372"), "forget my passport number", [True, False]),
        ((NUMBER, "my passport number is 533401372"), "forget my phone number", [False, True]),
        ((NUMBER, "Tom's number is 07700 900555"), "forget Tom's number", [True, False]),
        ((NUMBER, "I like rowing"), "forget my number", [False, True]),
        (("meine Handynummer ist 0151 22908813", "ich rudere"), "vergiss meine Nummer", [False, True]),
        (("mon numéro est le 06 12 34 56 78", "j'aime ramer"), "efface mon numéro", [False, True]),
        (
            ("my driving test is on the 14th of May", "I have a tattoo appointment on Saturday at 3"),
            "forget my tattoo appointment",
            [True, False],
        ),
        (
            ("my personal email is tess@home.org", "my work email is tess@corp.com"),
            "forget my work email",
            [True, False],
        ),
        (("I work as a nurse at Leeds General", "I have a cat"), "forget my job", [False, True]),
        ((FLAT, "I row"), "forget my address, I don't want it in there", [False, True]),
        ((FLAT, "I row"), "forget my address, leave it out from now on", [False, True]),
        (("My passport number is 533018842.", "I row"), "Kindly purge the passport number I pasted.", [False, True]),
        (("meine Adresse ist Torweg 1", "ich rudere"), "vergiss meine Adresse, die soll weg", [False, True]),
    ],
)
def test_the_one_of_that_kind_is_cut(memory: Memory, said: tuple[str, ...], request_: str, left: list[bool]) -> None:
    ids = tell(memory, *said)
    memory.add_message("user", request_)
    assert list_left(memory, ids, said) == left


@pytest.mark.parametrize(
    ("said", "request_"),
    [
        (("my mobile is 555 0101", "the kennel landline is 555 0190"), "delete my phone number"),
        (("meine Chefin ist Frau Abel", "die andere Chefin ist Frau Dorn"), "vergiss meine Chefin"),
        (("Jo from work is covering my shift", "my cousin Jo is staying with us"), "forget about Jo"),
    ],
)
def test_several_that_fit_are_proposed(memory: Memory, said: tuple[str, ...], request_: str) -> None:
    ids = tell(memory, *said)
    result = memory.add_message("user", request_)
    assert result.forgotten == ()
    assert len(result.proposed) >= 2
    assert list_left(memory, ids, said) == [True] * len(said)


@pytest.mark.parametrize(
    ("said", "request_", "left"),
    [
        # what tells of the speaker and only mentions somebody stays; what goes on about somebody does not
        (
            ("I'm Jo, I live in Leeds with Callum and work as a nurse", "Callum snores", "hes moved out last week"),
            "forget everything about callum",
            [True, False, False],
        ),
        (("I live in Leeds with Callum", "I like rowing"), "forget everything about Callum", [True, True]),
        (
            ("ich wohne mit Jonas in Ulm und arbeite als Pflegerin", "Jonas ist Koch", "er ist ausgezogen"),
            "vergiss alles über Jonas",
            [True, False, False],
        ),
        (("vivo en Vigo con Marcos", "Marcos es cocinero"), "olvida todo sobre Marcos", [True, False]),
        (("j'habite à Lyon avec Marc", "Marc est cuisinier"), "oublie tout sur Marc", [True, False]),
        # by the name that another statement gives
        (
            ("unser Hund heißt Balu", "Balu hat Angst vor Gewittern", "ich rudere gern"),
            "vergiss alles über den Hund",
            [False, False, True],
        ),
        (
            ("our dog is called Balu", "Balu is scared of thunder", "my cat is called Mio"),
            "forget everything about the dog",
            [False, False, True],
        ),
        (
            ("mi perro se llama Balu", "Balu tiene miedo a los truenos", "me gusta remar"),
            "olvida todo sobre mi perro",
            [False, False, True],
        ),
        (
            ("mon chien s'appelle Balu", "Balu a peur de l'orage", "j'aime ramer"),
            "oublie tout sur mon chien",
            [False, False, True],
        ),
        (("my boss is called Ray", "Ray shouts", "I row"), "forget everything about my boss", [False, False, True]),
        # the name of another's
        (("my sister's dog is called Rex", "Rex bites"), "forget everything about my dog", [True, True]),
    ],
)
def test_everything_about_somebody_is_cut(
    memory: Memory, said: tuple[str, ...], request_: str, left: list[bool]
) -> None:
    ids = tell(memory, *said)
    memory.add_message("user", request_)
    assert list_left(memory, ids, said) == left


@pytest.mark.parametrize(
    ("said", "request_", "left"),
    [
        (
            (NUMBER, "my address is 31 Larch Grove", "I moved to Leeds last year"),
            "forget my number and my address",
            [False, False, True],
        ),
        (
            (NUMBER, "my address is 31 Larch Grove", "I row"),
            "delete my phone number and my address please",
            [False, False, True],
        ),
        (("my phone is 07700 900123", "my email is tess@home.org"), "forget my phone and email", [False, False]),
        (
            ("meine Nummer ist 0151 22908813", "meine Adresse ist Torweg 1", "ich rudere"),
            "kannst du meine Nummer und meine Adresse löschen?",
            [False, False, True],
        ),
        (
            ("mi número es el 611 203 998", "mi dirección es calle Mayor 12", "me gusta remar"),
            "olvida mi número y mi dirección",
            [False, False, True],
        ),
        (
            ("mon numéro est le 06 12 34 56 78", "mon adresse est 12 rue des Lilas", "j'aime ramer"),
            "oublie mon numéro et mon adresse",
            [False, False, True],
        ),
        (
            ("I sing in a choir on Tuesdays", "my birthday is 4 March", "I row"),
            "forget the choir and my birthday",
            [False, False, True],
        ),
        (
            ("ich singe im Chor", "mein Geburtstag ist der 4. März", "ich rudere"),
            "vergiss den Chor und meinen Geburtstag",
            [False, False, True],
        ),
        (
            ("canto en un coro", "mi cumpleaños es el 4 de marzo", "me gusta remar"),
            "olvida lo del coro y mi cumpleaños",
            [False, False, True],
        ),
        (
            ("je chante dans une chorale", "mon anniversaire est le 4 mars", "j'aime ramer"),
            "oublie la chorale et mon anniversaire",
            [False, False, True],
        ),
        (
            ("I earn 41k", "my blood type is 0 neg", "I am vegetarian"),
            "delete my salary, my blood type and that I'm vegetarian",
            [False, False, False],
        ),
        # of two matters one is unknown
        (("my bank is Barclays", "my sister is a vet"), "forget my bank and my horse", [False, True]),
        # parts of one matter
        (("the diagnosis was MS", "the pills make me dizzy"), "forget the diagnosis and the pills", [False, False]),
        (
            ("my sister teaches PE in Hull", "I row"),
            "the thing about my sister and the bottle: delete it",
            [True, True],
        ),
    ],
)
def test_each_matter_of_a_list_is_resolved_by_itself(
    memory: Memory, said: tuple[str, ...], request_: str, left: list[bool]
) -> None:
    ids = tell(memory, *said)
    memory.add_message("user", request_)
    assert list_left(memory, ids, said) == left


LIFE = (
    "I row on Sundays",
    "my sister is a vet",
    "I have a cat called Mio",
    "I live in Leeds",
    "I work as a nurse",
    "I like jazz",
    "my birthday is 4 March",
)


@pytest.mark.parametrize(
    "requests",
    [
        ("forget my horse",),
        ("forget my cat", "forget my horse"),
        ("forget my horse", "forget my boat"),
        ("forget my horse", "delete my horse please"),
        ("forget that I live in Leeds", "forget my tortoise", "vergiss mein Pferd", "olvida mi caballo"),
    ],
)
def test_of_an_unknown_matter_little_is_proposed_and_no_request(memory: Memory, requests: tuple[str, ...]) -> None:
    tell(memory, *LIFE)
    for request in requests[:-1]:
        memory.add_message("user", request)
    result = memory.add_message("user", requests[-1])
    texts = [item.text for id in result.proposed if (item := memory.get(id))]
    assert result.forgotten == ()
    assert len(texts) <= 3
    assert not [text for text in texts if text not in LIFE]


@pytest.mark.parametrize(
    ("said", "request_", "left"),
    [
        (("I take 50mg sertraline", "my sister is a vet"), "forget the thing about my meds", [False, True]),
        (("ich nehme 50mg Sertralin", "ich rudere"), "vergiss das mit meinen Medikamenten", [False, True]),
        (("tomo 50mg de sertralina", "me gusta remar"), "olvida lo de mi medicación", [False, True]),
        (("je prends 50mg de sertraline", "j'aime ramer"), "oublie le truc sur mes médicaments", [False, True]),
        (("we paid 14k for the Skoda", "I have two kids"), "forget what i paid for the car", [False, True]),
        (("I bought the car for 8,500 pounds", "I have two kids"), "forget what i paid for the car", [False, True]),
        (
            ("I earn 31k a year", "we paid 14k for the Skoda", "I row"),
            "forget what I paid for the car",
            [True, False, True],
        ),
        (("I earn 31k a year", "we paid 14k for the Skoda", "I row"), "forget my salary", [False, True, True]),
        (
            ("ich verdiene 3100 netto", "der Skoda hat 14.000 Euro gekostet", "ich rudere"),
            "lösch mein Gehalt",
            [False, True, True],
        ),
        (
            ("gano 1900 al mes", "pagamos 14.000 euros por el Skoda", "remo"),
            "olvida lo que pagué por el coche",
            [True, False, True],
        ),
        (
            ("je gagne 1900 net", "on a payé 14 000 euros pour la Skoda", "je rame"),
            "efface mon salaire",
            [False, True, True],
        ),
        # a price of something else
        (("I've got £14,200 in bonds", "I row"), "forget what I paid for the boiler", [True, True]),
    ],
)
def test_a_clear_target_in_other_words_is_cut(
    memory: Memory, said: tuple[str, ...], request_: str, left: list[bool]
) -> None:
    ids = tell(memory, *said)
    memory.add_message("user", request_)
    assert list_left(memory, ids, said) == left


@pytest.mark.parametrize(
    ("said", "request_", "left"),
    [
        # a newer statement that tells of something else did not replace it
        (("I've three boys.", "I've had a vasectomy booked for 6 May."), "forget my vasectomy", [True, False]),
        # what a name does, not all about it
        (("Grandad had a gambling problem", "He's 91 in May."), "clear the note on Grandad's gambling", [False, True]),
        (
            ("Aunt Hilda lives in Hull.", "I had a quarrel with Aunt Hilda."),
            "forget everything about the quarrel with Aunt Hilda",
            [True, False],
        ),
        # with the earlier values of one thing
        (("I live in York", "I moved to Leeds"), "forget where I live", [False, False]),
        (("yoga class is on Mondays", "yoga moved to Thursdays"), "forget my yoga class", [False, False]),
        # years are no age
        (("I'm a baker", "they put it in two years ago"), "forget how old I am", [True, True]),
    ],
)
def test_what_only_stands_near_the_matter_stays(
    memory: Memory, said: tuple[str, ...], request_: str, left: list[bool]
) -> None:
    ids = tell(memory, *said)
    memory.add_message("user", request_)
    assert list_left(memory, ids, said) == left


@pytest.mark.parametrize(
    ("said", "request_"),
    [
        (
            ("Tengo cita con el notario el 9 de mayo.", "La cita con la matrona es el 20 de mayo."),
            "Borra lo de la cita.",
        ),
        (
            ("L'adresse de mes parents est 8 rue du Puits.", "L'adresse de l'atelier est 40 quai Nord."),
            "Oublie l'adresse.",
        ),
        (("Sam from school is getting divorced", "Sam at work got demoted"), "forget what I said about Sam"),
    ],
)
def test_nothing_is_cut_of_two_that_a_change_took_for_one(memory: Memory, said: tuple[str, ...], request_: str) -> None:
    ids = tell(memory, *said)
    assert memory.add_message("user", request_).forgotten == ()
    assert list_left(memory, ids, said) == [True] * len(said)
