"""The parts of a worker that need no server."""

import asyncio
import json
from uuid import UUID

import psycopg
import pytest

from frameledger import effects
from frameledger_services.claims import ClaimedRun
from frameledger_services.settings import Settings, SettingsError
from frameledger_services.settings_sources import load
from frameledger_services.work import database as work_database
from frameledger_services.work.cancellations import REMEMBERED, Cancelled
from frameledger_services.work.effect_decoding import NoEffectError, decode_effect
from frameledger_services.work.job import Job, StopReason

RUN = effects.RunInference("e", "ctx", 7, "run")
CALL = effects.CallFunction("e", "ctx", 7, 3, 0, "call", "f", None)
CANCEL = effects.Cancel("e", "ctx", 7, tool_call_id="call")


CAUSED = effects.RunInference("e", "ctx", 7, "run", UUID(int=7))


@pytest.mark.parametrize("effect", [RUN, CALL, CANCEL, CAUSED], ids=lambda effect: effect.effect)
def test_an_effect_is_read_as_it_was_written_whatever_stands_beside_it(effect):
    assert decode_effect(type(effect), json.dumps(effects.to_wire(effect) | {"later": 1}).encode()) == effect


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"effect": "cancel"}, "no run_inference"),
        ({"id": None}, "id: Input should be a valid string"),
        ({"id": ""}, "id: an id is 1 to 255 bytes"),
        ({"run_id": "a\0"}, "run_id: an id is 1 to 255 bytes without NUL"),
        ({"context_id": "é" * 128}, "context_id: an id is 1 to 255 bytes"),
        ({"version": "7"}, "version: Input should be a valid integer"),
        ({"version": True}, "version: Input should be a valid integer"),
        ({"version": -1}, "version: -1 is out of bounds"),
        ({"version": 2**63}, "version: "),
        ({"run_id": "\ud800"}, "no JSON"),
        ({"causation_id": "f-1"}, "causation_id: Input should be a valid UUID"),
    ],
)
def test_what_the_database_would_not_take_is_no_effect(fields, why):
    with pytest.raises(NoEffectError, match=why):
        decode_effect(effects.RunInference, json.dumps(effects.to_wire(RUN) | fields).encode())


def nested(levels):
    return b"[" * levels + b"]" * levels


@pytest.mark.regression("worker 59")
@pytest.mark.parametrize("levels", [253, 254, 1_000, 100_000])
def test_an_effect_with_something_too_deep_in_it_ends_no_worker(levels):
    beside, within = (
        json.dumps(effects.to_wire(RUN)).encode().replace(b"}", b', "%b": %b}' % (name, nested(levels)))
        for name in (b"later", b"run_id")
    )
    with pytest.raises(NoEffectError):
        decode_effect(effects.RunInference, within)
    if levels <= 1_000:
        assert decode_effect(effects.RunInference, beside) == RUN
    else:
        with pytest.raises(NoEffectError):
            decode_effect(effects.RunInference, beside)


@pytest.mark.parametrize("value", [None, b"", b"\xff", b"[]", b"1", b"{", b"{}"])
def test_bytes_that_are_no_object_are_no_effect(value):
    with pytest.raises(NoEffectError):
        decode_effect(effects.Cancel, value)


def test_a_cancellation_concerns_what_was_asked_for_before_it():
    cancelled = Cancelled()
    cancelled.add(CANCEL)
    assert cancelled.has("ctx", "call", 6)
    # The id was used again.
    assert not cancelled.has("ctx", "call", 8)
    assert not cancelled.has("ctx", "other", 6)
    assert not cancelled.has("other", "call", 6)
    # One that comes again, or late, takes nothing back.
    cancelled.add(effects.Cancel("e", "ctx", 5, tool_call_id="call"))
    assert cancelled.has("ctx", "call", 6)


def test_only_the_newest_cancellations_are_remembered():
    cancelled = Cancelled()
    for number in range(REMEMBERED + 1):
        cancelled.add(effects.Cancel("e", "ctx", 7, run_id=f"run-{number}"))
    assert not cancelled.has("ctx", "run-0", 1)
    assert cancelled.has("ctx", "run-1", 1)
    assert cancelled.has("ctx", f"run-{REMEMBERED}", 1)


def test_a_stronger_reason_to_stop_replaces_a_weaker_one_and_not_the_other_way_round():
    job = Job(ClaimedRun("e", "ctx", 7, "run", 1, "claim", None))
    assert not job.stop.is_set()
    for why, expected in [
        ("obsolete", "obsolete"),
        ("draining", "draining"),
        ("obsolete", "draining"),
        ("claim_lost", "claim_lost"),
        ("draining", "claim_lost"),
    ]:
        job.request_stop(why)
        assert job.stop.is_set()
        assert job.stop_reason == expected


@pytest.mark.regression("worker 2")
def test_every_request_to_stop_is_passed_on_also_a_repeated_one_and_the_one_before_somebody_listened():
    job = Job(ClaimedRun("e", "ctx", 7, "run", 1, "claim", None))
    heard: list[StopReason] = []
    job.on_stop_request(heard.append)
    assert heard == []
    job.request_stop("obsolete")
    job.request_stop("obsolete")
    assert heard == ["obsolete", "obsolete"]
    job.request_stop("draining")
    job.request_stop("obsolete")
    job.on_stop_request(heard.append)
    assert heard[2:] == ["draining"] * 3


def test_several_heartbeats_must_fit_into_a_lease():
    with pytest.raises(SettingsError, match="WORK_HEARTBEAT_SECS is more than half"):
        load({"FRAMELEDGER_WORK_HEARTBEAT_SECS": "3"}, look_for_running=False)


@pytest.mark.regression("fault 267")
def test_a_connection_counts_as_restored_only_when_its_statement_succeeds(monkeypatch, caplog):
    """On a full disk, or with a `statement_timeout` of the role, connections are made and the statement fails again."""

    class Made:
        async def close(self):
            pass

    async def connect(*_):
        return Made()

    async def on_reconnect(connection):
        made.append(connection)

    async def statement(_):
        if len(made) < 3:
            raise psycopg.errors.DiskFull("could not extend file")
        return "claimed"

    made = []
    monkeypatch.setattr(work_database, "connect", connect)
    monkeypatch.setattr(work_database, "PAUSE_SECONDS", 0.0)
    caplog.set_level("INFO")
    assert asyncio.run(work_database.Database(Settings(), "w-1", on_reconnect).do(statement)) == "claimed"
    assert [one.getMessage().split()[0] for one in caplog.records] == [
        "worker.retrying_database",
        "worker.reconnected",
    ]


@pytest.mark.regression("fault 319")
def test_a_statement_that_takes_too_long_says_what_did_not_answer(monkeypatch):
    async def connect(*_):
        await asyncio.Event().wait()

    monkeypatch.setattr(work_database, "connect", connect)
    monkeypatch.setattr(work_database, "STATEMENT_SECONDS", 0.0)
    with pytest.raises(TimeoutError, match="PostgreSQL did not answer within 0 s"):
        asyncio.run(work_database.Database(Settings(), "w-1", connect).first(connect))
