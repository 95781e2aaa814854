"""The last scene: everything of a user is erased, looked for, and proved gone."""

from __future__ import annotations

from engrain.cli.demo.stage import Stage


def erased(stage: Stage) -> None:
    before = stage.run('places("Ana")  # in the bytes of every file of the store')
    stage.run('done = memory.erase(user="ana")')
    done = stage.names["done"]
    stage.fact("erased", not done.pending, not done.pending)
    if done.pending:
        return
    stage.run('done.receipt.values["counts"]["item"]')
    stage.run('done.receipt.values["verified"]')
    after = stage.run('places("Ana")')
    holds = stage.run("bool(memory.verify_erasure(done.receipt))")
    stage.fact("places_of_the_user", [before, after], before > 0 and after == 0)
    stage.fact("receipt_holds", holds, holds is True)
    stage.verdict("Every tier, index, journal and byte: erased, looked for, and on a receipt without content.")
