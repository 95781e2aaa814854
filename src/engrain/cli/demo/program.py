"""What is played, in order. A new scene is one function and one line here."""

from __future__ import annotations

from collections.abc import Callable

from engrain.cli.demo import durability, erasure, knowledge, order, sessions
from engrain.cli.demo.stage import Stage

SCENES: tuple[tuple[str, Callable[[Stage], None]], ...] = (
    ("Remember, and recall. No key, no server, no download.", knowledge.remember_and_recall),
    ("A question it cannot answer.", knowledge.not_knowing),
    ("A fact that changes.", knowledge.a_fact_that_changes),
    ("The user who comes back after three days.", sessions.three_days_later),
    ("A preference of session 1, in session 47.", sessions.forty_seven_sessions_later),
    ("A conversation of five hundred turns.", sessions.five_hundred_turns),
    ("A second process.", durability.a_second_process),
    ("A process that is killed while it writes.", durability.a_killed_writer),
    ("A long task whose process is killed.", order.a_long_task),
    ("Forgetting, down to the bytes.", durability.forgetting),
    ("What it costs.", durability.what_it_costs),
    ("The user who wants to be erased, and a receipt for it.", erasure.erased),
)


def play(stage: Stage) -> None:
    try:
        durability.prepare(stage)
        for number, (title, scene) in enumerate(SCENES, 1):
            stage.title(number, title)
            scene(stage)
            stage.pause()
    finally:
        stage.leave()
