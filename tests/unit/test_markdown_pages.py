"""Pages are read back as they were written, merged without loss, and kept within their budget."""

from __future__ import annotations

from examples import for_each, up_to
from hypothesis import given, settings
from hypothesis import strategies as st

from engrain.core.errors import TooLarge
from engrain.core.markdown.layout import (
    FACTS,
    HEADER,
    KNOWLEDGE,
    PageBudget,
    RenderedEntry,
    add_overflow_note,
    choose_entries,
    compose_page,
    describe_overflow,
    fits_budget,
    list_conflict_ids,
    update_conflicts,
)
from engrain.core.markdown.page import Entry, detect_line_end, hash_entry, read_page, write_entry
from engrain.core.markdown.three_way_merge import (
    MEMORY,
    OVERFLOW,
    SYNC_BASE,
    DamageSigns,
    FileEntry,
    LineState,
    MemorySide,
    MergeDecision,
    SyncBase,
    SyncConflict,
    SyncedLine,
    hold_back_deletions,
    measure_similarity,
    merge_lines,
    parse_log_day,
    read_base,
    write_base,
)

ID = "0" * 25

# Whatever could be taken for a line, a slot, a time, an escape or a break.
PARTS = [
    *"ab.:*-_\\ \t\n\r`#", "<br>", "&#x20;", "&#xA;", "&#x41;", "**", "a.b", "\u2028", "\u202e", "\u00a0", "\ufeff",
    "- ", "1. ", "09:30 ", "**a.b**:", "---", "```", "<!--", "-->", "> ", " (slot): ", "**: ", ":** ", "\n\n", "\n  ",
    "\\<br>",
]  # fmt: skip
HOSTILE = st.lists(st.sampled_from(PARTS), min_size=1, max_size=10).map("".join)
ANY = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), min_size=1, max_size=60)
TEXTS = st.one_of(HOSTILE, ANY).filter(str.strip)
ENTRIES = st.one_of(TEXTS.map(Entry), st.builds(Entry, TEXTS, TEXTS))
LOGGED = st.builds(Entry, TEXTS, st.none(), st.sampled_from([None, "00:00", "23:59"]))


def entries(text: str, *, log: bool = False) -> list[Entry]:
    return [block.entry for block in read_page(text, log=log) if block.entry]


# Lines


@settings(max_examples=up_to(1_500))
@given(
    st.lists(ENTRIES, min_size=1, max_size=3),
    st.sampled_from(["\n", "\r\n"]),
    st.sampled_from(["-", "*", "  -", "12."]),
)
def test_every_text_and_slot_is_read_back_and_fakes_no_other_line(some: list[Entry], end: str, mark: str) -> None:
    page = "".join(write_entry(one, end=end, mark=mark) for one in some)
    assert [block.entry for block in read_page(page)] == some


@settings(max_examples=up_to(700))
@given(st.lists(LOGGED, min_size=1, max_size=3))
def test_a_log_gives_back_texts_with_their_time(some: list[Entry]) -> None:
    page = "".join(write_entry(one, log=True) for one in some)
    assert [block.entry for block in read_page(page, log=True)] == some


@settings(max_examples=up_to(700))
@given(TEXTS)
def test_the_blocks_of_any_page_are_the_page(text: str) -> None:
    assert "".join(block.raw for block in read_page(text)) == text


def test_lines_read_well() -> None:
    assert write_entry(Entry("Quito", "user.city")) == "- **user.city**: Quito\n"
    assert write_entry(Entry("blue", "favourite colour")) == "- **favourite colour** (slot): blue\n"
    assert write_entry(Entry("Decided: X\nWhy: Y", at="09:30"), log=True) == "- 09:30 Decided: X\n  Why: Y\n"
    assert write_entry(Entry("**Note**: bold is left alone")) == "- **Note**: bold is left alone\n"


@for_each(
    ("page", "found"),
    [
        ("* one\n+ two\n3. three\n", [Entry("one"), Entry("two"), Entry("three")]),
        ("- wrapped by\n  an editor\n", [Entry("wrapped by\nan editor")]),
        ("- runs on\nwithout an indent\n", [Entry("runs on\nwithout an indent")]),
        ("- a\n  - nested\n    - deeper\n- b\n", [Entry("a\n- nested\n  - deeper"), Entry("b")]),
        (" - a\n - b\n", [Entry("a"), Entry("b")]),
        ("- a\n\n  second paragraph\n\nprose\n", [Entry("a\n\nsecond paragraph")]),
        ("- **user.city:** Quito\n", [Entry("Quito", "user.city")]),
        ("- **Note:** not a slot\n", [Entry("**Note:** not a slot")]),
        ("```\n- code\n```\n- a\n", [Entry("a")]),
        ("<!-- off\n- hidden\n-->\n- a\n", [Entry("a")]),
        ("<!-- cut o\n- a\n", [Entry("a")]),
        ("```\n- a\n", [Entry("a")]),
        ("---\ntags:\n- yaml\n---\n- a\n", [Entry("a")]),
        ("# Title\n- - -\n***\n- \n-\n> - quoted\n", []),
        ("- **user.city**:\n- a\n", [Entry("a")]),
        ("- **user.city**:\n  Quito\n", [Entry("Quito", "user.city")]),
        ("\ufeff- a\r\n- b\r\n", [Entry("a"), Entry("b")]),
        ("- no end", [Entry("no end")]),
    ],
)
def test_what_people_write_is_read_as_markdown(page: str, found: list[Entry]) -> None:
    assert entries(page) == found


def test_times_of_day_are_for_logs_alone() -> None:
    assert entries("- 9:05 Met Bob\n- 25:00 is no time\n", log=True) == [
        Entry("Met Bob", at="09:05"),
        Entry("25:00 is no time"),
    ]
    assert entries("- 9:05 Met Bob\n") == [Entry("9:05 Met Bob")]


def test_the_same_line_in_another_form_is_the_same() -> None:
    one, other = entries("- **user.city**: Quito\n")[0], entries("*   **user.city:**  Quito  \r\n")[0]
    assert hash_entry(one) == hash_entry(other)
    assert hash_entry(Entry("a", "b.c")) != hash_entry(Entry("b.c", "a"))
    assert detect_line_end("a\r\nb\n") == "\r\n"
    assert detect_line_end("\na\r\n") == "\n"


# Merging

WORDS = ["Ana likes tea.", "Ana likes green tea.", "Bob has a dog.", "The backup runs at 3.", "Quito", "Lima"]


def line(number: int, entry: Entry, state: LineState = "written") -> SyncedLine:
    return SyncedLine(f"{ID}{number}", hash_entry(entry), MEMORY, state)


def seen(*some: Entry) -> list[FileEntry]:
    return [FileEntry(MEMORY, n, one, hash_entry(one), n + 1) for n, one in enumerate(some)]


def side(before: dict[int, Entry], now: dict[int, Entry | None] | None = None) -> MemorySide:
    """The memory's side, where an item has a new version or is gone in `now`; 100 more is the new version's number."""
    now = now or {}
    stands = {n: None if n in now and now[n] is None else n + 100 if n in now else n for n in before}
    shown = {n + 100: entry for n, entry in now.items() if entry} | {n: before[n] for n in before if n not in now}
    return MemorySide(
        {f"{ID}{n}": entry for n, entry in before.items()},
        {f"{ID}{n}": None if at is None else f"{ID}{at}" for n, at in stands.items()},
        {f"{ID}{n}": entry for n, entry in shown.items()},
    )


def do(verdicts: list[MergeDecision]) -> list[str]:
    return [one.do for one in verdicts]


TEA, DOG, CITY = Entry("Ana likes tea."), Entry("Bob has a dog."), Entry("Quito", "user.city")
ALL = {1: TEA, 2: DOG, 3: CITY}
LINES = [line(n, entry) for n, entry in ALL.items()]


@for_each(
    ("there", "now", "expected"),
    [
        ((TEA, DOG, CITY), {}, ["keep"] * 3),
        ((CITY, TEA, DOG), {}, ["keep"] * 3),  # moved
        ((Entry("Ana likes green tea."), DOG, CITY), {}, ["keep", "keep", "edit"]),
        ((TEA, DOG, Entry("Lima", "user.city")), {}, ["keep", "keep", "edit"]),
        ((TEA, CITY), {}, ["keep", "keep", "forget"]),
        ((TEA, DOG, CITY, Entry("New.")), {}, ["keep", "keep", "keep", "add"]),
        ((TEA, DOG, CITY), {1: None}, ["drop", "keep", "keep"]),
        ((TEA, DOG, CITY), {1: Entry("Ana likes coffee.")}, ["keep", "keep", "keep"]),
        ((Entry("Ana likes mate tea."), DOG, CITY), {1: Entry("Ana likes coffee.")}, ["keep", "keep", "clash"]),
        ((Entry("Ana likes coffee."), DOG, CITY), {1: Entry("Ana likes coffee.")}, ["keep", "keep", "keep"]),
        ((DOG, CITY), {1: Entry("Ana likes coffee.")}, ["keep", "keep", "clash"]),
        ((DOG, CITY), {1: None}, ["keep", "keep"]),
        ((TEA, DOG, Entry("Lima", "user.city")), {3: Entry("Bonn", "user.city")}, ["keep", "keep", "clash"]),
        ((TEA, TEA, DOG, CITY), {}, ["keep", "drop", "keep", "keep"]),
        ((TEA, DOG, CITY, Entry("Lima", "user.city")), {}, ["keep", "keep", "keep", "add"]),
    ],
)
def test_each_pair_of_changes_has_its_verdict(
    there: tuple[Entry, ...], now: dict[int, Entry | None], expected: list[str]
) -> None:
    assert do(merge_lines(LINES, seen(*there), side(ALL, now))) == expected


def test_two_deleted_lines_of_what_is_one_item_by_now_are_one_deletion() -> None:
    """The first item was corrected meanwhile, to what the second says."""
    both = MemorySide({f"{ID}1": TEA, f"{ID}2": DOG}, {f"{ID}1": f"{ID}2", f"{ID}2": f"{ID}2"}, {f"{ID}2": DOG})
    assert do(merge_lines(LINES[:2], [], both)) == ["forget"]
    assert do(merge_lines(LINES[:2], seen(Entry("Ana likes green tea.")), both)) == ["clash"]


def test_a_slot_that_the_memory_filled_meanwhile_is_a_clash_not_an_overwrite() -> None:
    both = MemorySide({}, {}, {f"{ID}9": Entry("Bonn", "user.city")})
    (one,) = merge_lines([], seen(CITY), both)
    assert (one.do, one.id) == ("clash", f"{ID}9")


def test_a_line_that_was_being_written_when_the_sync_was_cut_off_is_no_deletion() -> None:
    assert merge_lines([line(1, TEA, "writing")], [], side({1: TEA})) == []


def test_a_line_that_is_away_stays_away_until_it_comes_back() -> None:
    deleted = [line(1, TEA, "deleted")]
    assert do(merge_lines(deleted, [], side({1: TEA}))) == ["hold"]
    assert do(merge_lines(deleted, seen(TEA), side({1: TEA}))) == ["keep"]
    assert do(merge_lines(deleted, [], side({1: TEA}, {1: None}))) == []


VERSIONS = st.sampled_from([Entry(text) for text in WORDS])


@settings(max_examples=up_to(1_000))
@given(
    st.lists(VERSIONS, max_size=5, unique=True),
    st.lists(VERSIONS, max_size=6),
    st.dictionaries(st.integers(0, 4), st.one_of(st.none(), VERSIONS)),
)
def test_no_text_of_either_side_is_lost(
    before: list[Entry], there: list[Entry], changed: dict[int, Entry | None]
) -> None:
    base = dict(enumerate(before))
    now = {n: new for n, new in changed.items() if n in base and new != base[n]}
    both = side(base, now)
    found = merge_lines([line(n, entry) for n, entry in base.items()], seen(*there), both)
    # Every line of the file has one verdict. It is dropped only if it is the memory's own, gone there, or stands twice.
    assert sorted(one.seen.block for one in found if one.seen) == list(range(len(there)))
    ours = {hash_entry(entry) for entry in before} | {hash_entry(entry) for entry in both.shown.values()}
    for one in found:
        if one.do == "drop" and one.seen:
            assert one.seen.key in ours
        if one.do == "keep" and one.seen:
            assert one.seen.key in ours
        if one.do in ("keep", "clash"):
            assert one.id in both.shown
    # Every item stays shown, but for those whose own line is gone from the file while the memory left them alone.
    forgotten = {one.id for one in found if one.do == "forget"}
    texts = {one.key for one in seen(*there)}
    assert all(id in both.before and hash_entry(both.before[id]) not in texts for id in forgotten if id)


def test_many_deletions_and_broken_files_are_held_back() -> None:
    some = {n: Entry(f"{n} is a number of its own kind {n * 7919}") for n in range(10)}
    base = [line(n, entry) for n, entry in some.items()]

    def left(*numbers: int) -> list[str]:
        there = [some[n] for n in numbers]
        return do(hold_back_deletions(merge_lines(base, seen(*there), side(some)), base, side(some), DamageSigns()))

    assert left(*range(3, 10)).count("forget") == 3
    assert left(*range(6, 10)).count("hold") == 6
    gone = hold_back_deletions(
        merge_lines(base[:2], [], side(some)), base[:2], side(some), DamageSigns(frozenset((MEMORY,)))
    )
    assert do(gone) == ["hold", "hold"]


def test_a_file_that_was_cut_off_deletes_nothing_and_corrects_nothing() -> None:
    some = {n: Entry(f"Number {n} is a fact of some length {n * 7919}.") for n in range(5)}
    base = [line(n, entry) for n, entry in some.items()]
    there = seen(some[0], some[1], some[2], Entry("Number 3 is a fact of so"))
    torn = DamageSigns(unended={MEMORY: there[-1]})
    assert sorted(do(hold_back_deletions(merge_lines(base, there, side(some)), base, side(some), torn))) == [
        "drop", "hold", "hold", "keep", "keep", "keep",
    ]  # fmt: skip


def test_texts_are_alike_in_any_script() -> None:
    assert measure_similarity("Ana likes tea.", "Ana likes green tea.") > 0.6
    assert measure_similarity("アナは紅茶が好きです", "アナは緑茶が好きです") > 0.6
    assert measure_similarity("Ana likes tea.", "The backup runs at 3.") < 0.25


# The base


def test_the_base_round_trips_and_holds_no_text() -> None:
    base = SyncBase("f", "s").advance([line(1, TEA), line(2, DOG, "deleted")])
    assert read_base(write_base(base)) == base
    assert "tea" not in write_base(base)
    later = base.advance([line(2, DOG)])
    assert (later.round, later.ours) == (2, (hash_entry(TEA),))
    for broken in ("", "{", "[]", '{"version": 1}', '{"version": 99, "lines": []}', "[" * 100_000):
        assert read_base(broken) is None


def test_while_files_are_written_it_is_known_what_comes_and_what_goes() -> None:
    before, after = (
        SyncBase("f", "s", 1, (line(1, TEA), line(2, DOG))),
        SyncBase("f", "s", 2, (line(2, DOG), line(3, CITY))),
    )
    between = before.while_writing(after)
    assert {one.id[-1]: one.state for one in between.lines} == {"1": "removing", "2": "written", "3": "writing"}


def test_days_are_told_by_the_name_of_the_file() -> None:
    assert str(parse_log_day("memory/2026-11-15.md")) == "2026-11-15"
    for name in (
        MEMORY,
        OVERFLOW,
        SYNC_BASE,
        "memory/2026-02-30.md",
        "memory/2026-11-15.md\n",
        "../memory/2026-11-15.md",
    ):
        assert parse_log_day(name) is None


# Layout


def piece(number: int, text: str, heading: str | None = KNOWLEDGE, pinned: bool = False) -> RenderedEntry:
    return RenderedEntry(str(number), write_entry(Entry(text)), heading, pinned)


def test_what_people_wrote_stays_where_it_is() -> None:
    page = "# Mine\n\nA word.\n\n## knowledge\n- a\n- b\n\n## Later\n\n- c\n"
    blocks = read_page(page)
    b = next(n for n, block in enumerate(blocks) if block.entry == Entry("b"))
    assert compose_page(blocks, {b: "- B\n"}, [piece(1, "d")]) == page.replace("- b\n", "- B\n- d\n")
    assert compose_page(blocks, {}, [piece(1, "x", FACTS)]) == page + "\n## Facts\n\n- x\n"


def test_an_empty_heading_of_ours_goes_and_any_other_stays() -> None:
    page = f"{HEADER}\n## Facts\n\n- a\n\n## Mine\n\n- b\n"
    blocks = read_page(page)
    put = dict.fromkeys(n for n, block in enumerate(blocks) if block.entry)
    assert compose_page(blocks, put, []) == f"{HEADER}\n## Mine\n\n"


def test_a_new_line_never_runs_into_what_stands_around_it() -> None:
    for page in ("- a", "prose", "## Knowledge\n\n    code\n", "## Knowledge\nprose\n## X\n", "- a\n\n```\nx\n```"):
        made = compose_page(read_page(page), {}, [piece(1, "new")])
        assert entries(made) == [*entries(page), Entry("new")], page


PIECES = st.lists(st.tuples(st.text("abc \n", min_size=1, max_size=400).filter(str.strip), st.booleans()), max_size=40)


@settings(max_examples=up_to(300))
@given(PIECES, st.integers(20, 80), st.integers(1_000, 4_000))
def test_the_budget_is_never_exceeded_and_nothing_pinned_is_left_out(
    some: list[tuple[str, bool]], lines: int, size: int
) -> None:
    budget = PageBudget(lines, size)
    pieces = [piece(n, text, pinned=pinned) for n, (text, pinned) in enumerate(some)]
    try:
        kept = choose_entries(pieces, HEADER, budget)
    except TooLarge:
        assert sum(one.raw.count("\n") for one in pieces if one.pinned) + 20 > lines or (
            sum(len(one.raw) for one in pieces if one.pinned) + 400 > size
        )
        return
    page = compose_page(read_page(HEADER), {}, [one for one in pieces if one.id in kept])
    assert fits_budget(add_overflow_note(page, len(pieces) - len(kept), describe_overflow(budget)), budget)
    assert all(one.id in kept for one in pieces if one.pinned)


def test_the_note_of_what_is_elsewhere_is_written_once() -> None:
    once = add_overflow_note("## Facts\n\n- a\n", 3, describe_overflow(PageBudget()))
    assert once.count("3 more are in") == 1
    again = compose_page(read_page(once), {}, [piece(1, "b", FACTS)])
    assert again == "## Facts\n\n- a\n- b\n"
    assert compose_page(read_page(once), {2: None}, []) == ""
    assert add_overflow_note(again, 0, "") == again


# Conflicts


def test_a_conflict_is_kept_once_and_goes_with_its_item() -> None:
    one = SyncConflict(MEMORY, "a" * 26, "Ana likes\nmate.", "Ana likes coffee.")
    page = update_conflicts("", [one, one], set(), "2026-11-15")
    assert f"- 2026-11-15, MEMORY.md, {'a' * 26}: Ana likes\n  mate.\n" in page
    assert update_conflicts(page, [one], set(), "2026-11-16") == page
    assert list_conflict_ids(page) == ["a" * 26]
    assert update_conflicts(page, [], {"a" * 26}, "2026-11-16") == ""
    assert update_conflicts("", [], set(), "2026-11-16") == ""
