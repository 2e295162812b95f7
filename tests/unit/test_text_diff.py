"""The differences of two texts by word, and wrapped lines: nothing is lost, and no line is too wide."""

from hypothesis import example, given
from hypothesis import strategies as st
from rich.cells import cell_len

from frameledger_services.cli.terminal import text_diff

WORDS = st.sampled_from(["a", "b", " ", ",", "word ", "\n", "漢字"])
TEXTS = st.lists(WORDS, max_size=12).map("".join)

SHORT_TEXTS = st.lists(WORDS, max_size=text_diff.KEPT).map("".join)
"""Of which nothing unchanged is left out: each has at most twice as many words and spaces as are shown on one side."""


@given(SHORT_TEXTS, SHORT_TEXTS)
@example("word " * text_diff.KEPT, "word " * text_diff.KEPT)
def test_what_is_kept_and_added_is_the_new_text_and_what_is_kept_and_removed_the_old(before, after):
    pieces = text_diff.changed(before, after)
    assert "".join(text for text, style in pieces if style != "removed") == after
    assert "".join(text for text, style in pieces if style != "added") == before


def test_of_a_long_text_only_what_is_near_a_change_is_shown():
    same = " ".join(str(number) for number in range(200))
    told = text_diff.changed(f"{same} old {same}", f"{same} new {same}")
    assert [style for _, style in told] == ["", "removed", "added", ""]
    assert sum(len(text) for text, _ in told) < 200


def test_a_text_that_is_too_long_to_compare_is_shown_whole():
    before, after = "a " * text_diff.MAX_WORDS + "a", "b " * text_diff.MAX_WORDS + "b"
    same = text_diff.changed(before, after) == [(before, "removed"), (after, "added")]
    assert same, "not the texts themselves: pytest would compare them"


@given(st.lists(st.tuples(TEXTS, st.sampled_from(["", "added"])), max_size=5), st.integers(4, 20))
def test_lines_fit_and_have_all_words(pieces, width):
    lines = list(text_diff.lines(pieces, width))
    assert lines
    told = "".join(text for line in lines for text, _ in line)
    assert "".join(told.split()) == "".join("".join(text for text, _ in pieces).split())
    for line in lines:
        assert cell_len("".join(text for text, _ in line).rstrip()) <= width
