"""Scenes about knowing: remember, recall, not knowing, and facts that change."""

from __future__ import annotations

from engrain.cli.demo.stage import Stage

QUESTION = "What is her favourite programming language?"
UNKNOWN = "How tall is the Eiffel Tower?"


def remember_and_recall(stage: Stage) -> None:
    stage.run("from engrain import Memory")
    stage.run('memory = Memory("agent.db", user="ana")')
    stage.leaving.append(stage.names["memory"].close)
    stage.run('memory.remember("Ana prefers Python over JavaScript.", importance=0.8)')
    stage.run('memory.remember("The release train leaves every Tuesday at 14:00.")')
    stage.run('memory.remember("Ana\'s cat is called Miso.")')
    found = stage.run(f'print(memory.recall("{QUESTION}", n=1))')
    stage.fact("recalled", found.strip(), "Ana prefers Python" in found)
    stage.say("Found by meaning: question and answer have no word in common. Nothing left this machine.")


def not_knowing(stage: Stage) -> None:
    stage.run(f'found = memory.recall("{UNKNOWN}")')
    hits = stage.run("found.hits")
    cut = stage.run("print(*found.left_out)")
    stage.fact("unknown_hits", len(hits), not hits)
    stage.fact("unknown_left_out", cut.strip(), "below the relevance floor" in cut)
    stage.say("It would rather say nothing than something beside the point, and it says what it left out.")


def a_fact_that_changes(stage: Stage) -> None:
    for city, day in (("Lima", "2025-03-01"), ("Quito", "2026-06-01")):
        said = f'memory.remember("Ana lives in {city}.", slot="user.city",'
        stage.run(f'{said}\n                occurred_at="{day}")', silent=True)
    now = stage.run('memory.slot("user.city").text')
    then = stage.run('memory.slot("user.city", as_of="2025-12-24").text')
    found = stage.run('print(memory.recall("Where is Ana\'s home?", n=1))')
    stage.fact("city_now", now, "Quito" in now)
    stage.fact("city_then", then, "Lima" in then)
    stage.fact("recall_is_current", "Lima" not in found and "Quito" in found, "Lima" not in found and "Quito" in found)
    stage.say("A newer value closes the older one. Nothing is overwritten: as_of brings it back.")
