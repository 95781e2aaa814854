"""Two texts are near duplicates only if hiding one of them hides nothing that only it says."""

from __future__ import annotations

from examples import for_each

from engrain.retrieval.duplicates import normalize_words

APART = [
    ("Ana likes tea.", "Ana does not like tea."),
    ("Ana can swim.", "Ana can't swim."),
    ("The meeting is in room 12.", "The meeting is in room 13."),
    ("The answer is 1.5.", "The answer is 15."),
    ("It costs .5 a day.", "It costs 5 a day."),
    ("Ana writes C++.", "Ana writes C."),
    ("Ana writes C#.", "Ana writes C."),
    ("It is -5 degrees.", "It is 5 degrees."),
    ("Alert when x < 5.", "Alert when x > 5."),
    ("It costs $5.", "It costs €5."),
    ("Interest is 10%.", "Interest is 10."),
    ("Ben is 5' tall.", 'Ben is 5" tall.'),
    ("Ana said 👍", "Ana said 👎"),
    ("Ana studies the universe.", "Ana studies the university."),
    ("He was general.", "He was generous."),
    ("That was an experiment.", "That was an experience."),
    ("Take vitamin A.", "Take vitamin."),
    ("They said IT works.", "They said it works."),
    ("Ana works for Ben.", "Ben works for Ana."),
    ("Ana is married?", "Ana is married."),
    ("The lamp is on.", "The lamp is off."),
]
TOGETHER = [
    ("Ana likes tea.", "Ana likes tea"),
    ("Ana likes tea.", "ana likes  the tea!"),
    ("The deploy key is blue.", "Deploy key is blue"),
    ("He said “yes”.", 'He said "yes"'),
    ("Please call Ben, now.", "call Ben now"),
    ("Cafe\u0301 Rex is open.", "Caf\u00e9 Rex is open."),
]


@for_each(("one", "other"), APART)
def test_what_differs_in_what_it_says_is_two(one: str, other: str) -> None:
    assert [*normalize_words(one)] != [*normalize_words(other)]


@for_each(("one", "other"), TOGETHER)
def test_what_differs_in_how_it_is_written_is_one(one: str, other: str) -> None:
    assert [*normalize_words(one)] == [*normalize_words(other)]
