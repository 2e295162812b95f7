"""Sent text is never taken back: a new attempt is sent from where it continues that text, or differs."""

from frameledger_services.resumed_text import ResumedText


def test_text_is_sent_once_as_it_grows():
    resumed = ResumedText()
    assert [resumed.more(text) for text in ("", "Yes", "Yes, ", "Yes, ")] == ["", "Yes", ", ", ""]


def test_a_new_attempt_is_held_until_it_has_repeated_what_was_sent():
    resumed = ResumedText("Yes, at 22")
    assert [resumed.more(text) for text in ("Y", "Yes, at 22", "Yes, at 22:40.")] == ["", "", ":40."]


def test_a_new_attempt_with_other_words_is_none_and_may_be_sent_from_its_start():
    resumed = ResumedText("Yes, at 22")
    assert resumed.more("No") is None
    resumed.restart("No")
    assert resumed.more("No train.") == " train."


def test_a_new_attempt_that_ends_before_it_has_repeated_all_is_none():
    assert ResumedText("Yes, at 22").more("Yes", may_grow=False) is None
