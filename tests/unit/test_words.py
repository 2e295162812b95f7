"""One term for each concept, the usual one of the field: replaced terms are not used again.

Each is listed with its replacement. Frames, columns, reasons and settings keep their published names; the changelog and
`findings.md` may use old terms.
"""

import re

import pytest
from tests.unit.test_repository import texts

RETIRED = {
    r"nobody_listens|\bpassing\(|\b_passing\b": "failpoint",
    r"\bPASSING\b|\b_is_passing\b": "transient",
    r"manieth": "the number of, every fifth",
    r"\bKillerError\b": "PoisonError",
    r"\bsend_home\b": "stop_all",
    r"\b(InHand|in_hand)\b": "InFlight",
    r"\bHeart\b|\bbury\b": "HeartbeatThread; reap, mark dead",
    r"\bTails\b|\bsee_off\b": "BackgroundTasks, reap",
    r"\bSurroundings\b|\bHands\b|\bStanding\b": "CallDependencies, LeasedPublisher, CallSnapshot",
    r"\bdealt_with\b|\bIntake\b": "ack, EffectConsumer",
    r"\btruce\b": "back-off",
    r"\brecordset\b": "row parameters, binary COPY",
    r"\bsemantics \d|\barchitecture \d|\bRA5\.runs\b": "a rule of rules.md, a page, a section",
    r"\bNow and again\b|\bas good as that\b": "how often; what exactly",
}
SPEAK_OF_THE_PAST = {"CHANGELOG.md", "tests/findings.md", "tests/unit/test_words.py"}
APPLIED = re.compile(r"migrations/(sql|versions)/000[1-3]")
"""Migrations that are never edited."""


@pytest.mark.parametrize("retired", RETIRED)
def test_a_retired_word_is_not_used(retired):
    word = re.compile(retired)
    found = [
        f"{name}:{number}: {line.strip()}"
        for name, text in texts().items()
        if name not in SPEAK_OF_THE_PAST
        and not name.endswith((".jsonl", ".lock"))
        and not APPLIED.match(name)
        for number, line in enumerate(text.splitlines(), 1)
        if word.search(line)
    ]
    assert found == [], f"instead: {RETIRED[retired]}"
