"""The newest items of a task, word for word and within a budget, after a summary of those before them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from engrain.core.digest import SUMMARY, Line, Part, chosen, lines, text_of
from engrain.core.errors import InvalidInput, TooLarge
from engrain.core.fitting import middle_cut
from engrain.core.text import checked_count, checked_key, checked_name, checked_share, checked_text
from engrain.core.tiers import Window
from engrain.core.tokens import CountTokens

MAX_TOKENS = 1_000_000
LEAST_TOKENS = 100
LEAST_SHARE = 0.25  # compressed earlier, there would be no room for a summary
SUMMARY_SHARE = 3  # the summary has at most a third of the tokens at which the buffer is compressed


@dataclass(frozen=True, slots=True)
class Entry:
    """An item as it is kept. Of one that was too large head and tail are kept, and `left_out` says how much is not."""

    text: str
    kind: str
    speaker: str
    tokens: int
    left_out: int = 0
    lines: tuple[Line, ...] = field(default=(), repr=False, compare=False)


def checked_window(max_tokens: object, max_items: object, summarize_at: object, keep_recent: object) -> Window:
    tokens = checked_count(max_tokens, "max_tokens", LEAST_TOKENS, MAX_TOKENS)
    items = checked_count(max_items, "max_items", 2)
    share = checked_share(summarize_at, "summarize_at")
    if share < LEAST_SHARE:
        raise InvalidInput(f"summarize_at must be from {LEAST_SHARE} to 1, not {summarize_at!r}.")
    # One less than the most, so that a full buffer has something to summarise.
    return Window(items, tokens, share, items, checked_count(keep_recent, "keep_recent", 1, items - 1))


@dataclass(frozen=True, slots=True)
class Budget:
    """What may be kept, as `count` counts it. With `models`, summarised items are kept for a model a while longer."""

    window: Window
    count: CountTokens
    models: bool = False

    @property
    def full(self) -> int:
        """The tokens above which the buffer is compressed."""
        return int(self.window.max_tokens * self.window.summarize_at)

    @property
    def summary(self) -> int:
        return self.full // SUMMARY_SHARE

    @property
    def item(self) -> int:
        """The largest item that leaves room for the summary."""
        return self.window.max_tokens - self.summary

    def entry(self, text: object, kind: object, speaker: object, left_out: int = 0) -> Entry:
        """An item, checked and cut to size."""
        given = checked_text(text)
        kept, gone = middle_cut(given, self.item, self.count)
        if not kept:
            raise TooLarge(f"the text has {gone:,} tokens, and not even a part of it fits into {self.item:,}.")
        part = Part(kept, checked_name(speaker, "speaker"), checked_key(kind, "kind"))
        told = tuple(lines(part, self.count))
        return Entry(kept, part.kind, part.speaker, self.count(kept), left_out + gone, told)


@dataclass(frozen=True, slots=True)
class Buffer:
    """`settled` and `fresh` are the lines of the summary. The fresh ones come from the `folded` items, which a model
    may still sum up better."""

    budget: Budget
    items: tuple[Entry, ...] = ()
    settled: tuple[Line, ...] = ()
    fresh: tuple[Line, ...] = ()
    folded: tuple[Entry, ...] = ()

    @property
    def lines(self) -> tuple[Line, ...]:
        return self.settled + self.fresh

    @property
    def summary(self) -> str:
        return text_of(self.lines)

    @property
    def tokens(self) -> int:
        summed_up = self.budget.count(self.summary) if self.lines else 0
        return summed_up + sum(item.tokens for item in self.items)

    def added(self, *entries: Entry) -> Buffer:
        grown = replace(self, items=self.items + entries)
        full = len(grown.items) > self.budget.window.max_items or grown.tokens > self.budget.full
        return grown.compressed() if full else grown

    def compressed(self) -> Buffer:
        """The newest items word for word, as many as the budget says and has room for; the others in the summary."""
        kept = self._kept()
        older = self.items[: len(self.items) - kept]
        if not older:
            return self
        settled, fresh, folded = self._told_apart(older)
        shorter = replace(self, items=self.items[len(older) :], folded=folded)
        return shorter.telling(settled, fresh)

    def telling(self, settled: Sequence[Line], fresh: Sequence[Line] = ()) -> Buffer:
        """With these lines as its summary, or those of most worth."""
        picked = chosen((*settled, *fresh), self.budget.summary, self.budget.count)
        early = {line.text for line in settled}
        return replace(
            self,
            settled=tuple(line for line in picked if line.text in early),
            fresh=tuple(line for line in picked if line.text not in early),
        )

    def improved(self, summary: str) -> Buffer:
        """With a model's summary in place of the lines that were taken from the folded items."""
        told = lines(Part(summary, kind=SUMMARY), self.budget.count)
        return replace(self, folded=()).telling((*self.settled, *told))

    def _kept(self) -> int:
        """The newest is always kept: `Budget.entry` has seen to it that it fits."""
        window, room = self.budget.window, self.budget.full - self.budget.summary
        kept = 0
        for item in reversed(self.items[-window.keep_recent :]):
            room -= item.tokens
            if kept and room < 0:
                break
            kept += 1
        return kept

    def _told_apart(self, older: tuple[Entry, ...]) -> tuple[tuple[Line, ...], tuple[Line, ...], tuple[Entry, ...]]:
        new = tuple(chain.from_iterable(item.lines for item in older))
        if not self.budget.models:
            return (*self.lines, *new), (), ()
        folded = (*self.folded, *older)
        if sum(item.tokens for item in folded) <= self.budget.window.max_tokens:
            return self.settled, (*self.fresh, *new), folded
        # No model has come by for too long: what it would have to read must not grow for ever.
        return self.lines, new, older
