"""`dlq retry` of more positions than are read at once, and of one that is published twice."""

from contextlib import nullcontext
from datetime import UTC, datetime

import pytest
from typer.testing import CliRunner

from frameledger.record import FIRST_GENERATION, LogPosition, Record, derived_id, read
from frameledger_services import database
from frameledger_services.cli.repair import dlq
from frameledger_services.cli.repair import retry as republish
from frameledger_services.store import dead_letters, schema
from frameledger_services.store.dead_letters import AT_ONCE, DeadLetter
from frameledger_services.store.record_headers import headers_as_json

NOW = datetime(2026, 11, 22, tzinfo=UTC)


def letter(place, headers="[]"):
    return DeadLetter(
        topic=place.topic,
        partition=place.partition,
        offset=place.offset,
        logged_at=NOW,
        recorded_at=NOW,
        retried_at=None,
        code="bad",
        error="-",
        context_id="a",
        key=b"a",
        value=b'{"type":"LLMRunFrame"}',
        generation=place.generation,
        headers=headers,
    )


@pytest.fixture
def retry(monkeypatch):
    """Retries positions of partition 3, one of which has no dead letter. Returns the result, and what was published."""
    published, missing = [], set()

    async def connect(*_, **__):
        return nullcontext()

    class Producer:
        def __init__(self, *_, **__):
            pass

        async def __aenter__(self):
            return self

        async def __aexit__(self, *_):
            pass

        async def publish(self, topic, records):
            published.extend(records)
            return [LogPosition(topic, 3, 1_000 + len(published), FIRST_GENERATION)]

    async def at(_, places):
        return [letter(one) for one in places if one.offset not in missing]

    async def nothing(*_):
        pass

    monkeypatch.setattr(database, "connect", connect)
    monkeypatch.setattr(republish, "Producer", Producer)
    monkeypatch.setattr(schema, "check", nothing)
    monkeypatch.setattr(dead_letters, "at", at)
    monkeypatch.setattr(dead_letters, "note_retried", nothing)

    def retry(count, without):
        missing.add(without)
        words = ["retry", *(f"3:{offset}" for offset in range(count))]
        return CliRunner().invoke(dlq.commands, words), published

    return retry


def test_one_that_is_missing_behind_others_does_not_hide_what_was_published(retry):
    done, published = retry(AT_ONCE + 2, without=AT_ONCE)
    assert done.exit_code == 1, done.output
    assert len(published) == len(done.stdout.splitlines()) == AT_ONCE + 1
    assert done.stderr.splitlines() == [
        f"3:{AT_ONCE} was not published: there is no dead letter at this position."
    ]


def test_one_that_is_missing_among_the_first_is_told_before_anything_is_published(retry):
    done, published = retry(2, without=1)
    assert (done.exit_code, published) == (1, [])
    assert "There is no dead letter at 3:1" in done.stderr


@pytest.mark.regression("fault 294")
def test_a_frame_that_is_published_twice_by_a_retry_that_died_and_its_repetition_counts_once():
    place = LogPosition("llm.frames", 3, 7, 2)
    first = republish.outgoing(letter(place))
    rejected_again = republish.outgoing(
        letter(LogPosition("llm.frames", 3, 1_002, 2), headers_as_json(first.headers).decode())
    )
    copies = [
        read(Record("llm.frames", 3, offset, one.key, one.value, one.headers, generation=2))
        for offset, one in ((1_000, first), (1_001, first), (1_003, rejected_again))
    ]
    assert {one.frame_id for one in copies} == {derived_id(place)}
