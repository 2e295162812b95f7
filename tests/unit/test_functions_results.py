"""How a call ends: results, reports and errors of handlers, and frames that cannot be published."""

import asyncio
import math
from collections.abc import Mapping
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path
from types import MappingProxyType
from unittest.mock import ANY
from uuid import UUID

import pytest
from pydantic import BaseModel
from tests.bounds import IN_PROCESS, scaled
from tests.support.calls_in_memory import CALL, InMemory, NeverFolded, OneCall, outcomes, run_call
from tests.support.turns import turns

from frameledger.frames import FunctionCallResultProperties
from frameledger.record import MAX_VALUE_BYTES, outgoing
from frameledger_services import call_words
from frameledger_services.event_log.publish_errors import RecordRefusedError, TooLargeError
from frameledger_services.functions import FunctionCallParams, ResultRefusedError, notifications
from frameledger_services.functions.call_lifecycle import CallLifecycle
from frameledger_services.functions.options import Options
from frameledger_services.work import LeaseLostError
from frameledger_services.work import publisher as worker_publisher


class ApiError(Exception):
    """An error whose `__str__` returns no string, so that `str` of it raises a TypeError."""

    def __init__(self, body):
        self.body = body

    def __str__(self):
        return self.body


@pytest.mark.regression("worker 1")
@pytest.mark.parametrize("plain", [True, False])
def test_a_handler_whose_error_has_no_text_ran_once_and_failed(plain):
    begun = []

    async def pay(params):
        begun.append("pay")
        # Otherwise a handler that begins again and again never yields to the event loop.
        await turns(1)
        raise ApiError({"code": 402})

    def in_a_thread(params):
        begun.append("pay")
        raise ApiError({"code": 402})

    frames = asyncio.run(run_call(in_a_thread if plain else pay, is_async=not plain))
    assert (outcomes(frames), begun) == (["FunctionCallInProgressFrame", "ErrorFrame", "failed"], ["pay"])
    assert "ApiError" in frames[1].message


class ClosedSession(Mapping):
    """A mapping that raises this error when its value is read, as encoding does."""

    def __init__(self, error):
        self._error = error

    def __getitem__(self, key):
        raise self._error

    def __iter__(self):
        return iter(["a"])

    def __len__(self):
        return 1


ENDS = SystemExit("Goodbye."), asyncio.CancelledError()
"""They would end the process, or the job."""


class Encoding(InMemory):
    """A publisher that encodes frames, as the real one does."""

    async def publish(self, context_id, *frames, causation_id):
        for frame in frames:
            outgoing(frame, context_id, source="test")
        await super().publish(context_id, *frames, causation_id=causation_id)


NAMED_AT_LENGTH = replace(CALL, function_name="f" * (MAX_VALUE_BYTES * 2 // 3))
"""Announced and started in frames that are just small enough for the log."""


@pytest.mark.regression("worker 56")
@pytest.mark.parametrize("options", [Options(), Options(safe_to_retry=True)], ids=["unsafe", "safe"])
def test_a_call_whose_name_fills_a_frame_is_settled_like_any_other(options):
    async def handler(params):
        raise ValueError("x" * MAX_VALUE_BYTES)

    frames = asyncio.run(run_call(handler, options, leased=Encoding(), call=NAMED_AT_LENGTH))
    assert outcomes(frames) == ["FunctionCallInProgressFrame", "ErrorFrame", "failed"]


@pytest.mark.regression("worker 56")
def test_a_result_whose_error_fills_a_frame_fails_its_call():
    async def handler(params):
        return ClosedSession(OSError("x" * MAX_VALUE_BYTES))

    frames = asyncio.run(run_call(handler, leased=Encoding()))
    assert outcomes(frames) == ["FunctionCallInProgressFrame", "ErrorFrame", "failed"]


@pytest.mark.regression("worker 6")
@pytest.mark.parametrize(
    "error",
    [
        OSError("The session is closed."),
        ApiError({"code": 402}),
        *(pytest.param(error, marks=pytest.mark.regression("worker 49")) for error in ENDS),
    ],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("reports", [True, False])
def test_a_result_that_raises_when_it_is_encoded_fails_its_own_call_only(error, reports):
    told = []

    async def handler(params):
        if not reports:
            return ClosedSession(error)
        try:
            await params.result_callback(ClosedSession(error))
        except ResultRefusedError as refusal:
            told.append(str(refusal))

    frames = asyncio.run(run_call(handler, leased=Encoding()))
    assert outcomes(frames) == ["FunctionCallInProgressFrame", "ErrorFrame", "failed"]
    assert ["its result is not JSON" in text for text in told] == [True] * reports


@dataclass
class Place:
    city: str
    since: date


class Booking(BaseModel):
    place: Place
    price: Decimal
    tags: set[str]


BOOKING = Booking(place=Place("Oslo", date(2026, 1, 2)), price=Decimal("1.50"), tags={"late"})
BOOKED = {"place": {"city": "Oslo", "since": "2026-01-02"}, "price": "1.50", "tags": ["late"]}


@pytest.mark.parametrize(
    ("result", "told"),
    [
        (BOOKING, BOOKED),
        ({"all": [BOOKING], "half": "\ud800"}, {"all": [BOOKED], "half": "\\ud800"}),
        (datetime(2026, 1, 2, tzinfo=UTC), "2026-01-02T00:00:00Z"),
        (timedelta(minutes=1), "PT1M"),
        ({"id": UUID(int=1), "place": Place("Oslo", date.min)}, {"id": str(UUID(int=1)), "place": ANY}),
    ],
    ids=["model", "models", "date", "duration", "dictionary"],
)
def test_a_result_may_have_the_types_that_arguments_have(result, told):
    async def handler(params):
        await params.result_callback(result, properties=FunctionCallResultProperties(is_final=False))
        return result

    frames = asyncio.run(run_call(handler, Options(cancel_on_interruption=False), leased=Encoding()))
    assert [frame.result for frame in frames[1:]] == [told, told]


class Size(Enum):
    LARGE = "l"


@pytest.mark.regression("worker 101")
def test_the_keys_of_a_result_may_have_these_types_too():
    keys = {
        date(2026, 1, 2): "2026-01-02",
        datetime(2026, 1, 2, tzinfo=UTC): "2026-01-02T00:00:00Z",
        timedelta(minutes=1): "PT1M",
        UUID(int=1): str(UUID(int=1)),
        Size.LARGE: "l",
        Decimal("1.50"): "1.50",
        Path("a"): "a",
        7: "7",
        None: "null",
    }
    result: dict[object, str] = dict.fromkeys(keys, "x")
    told = dict.fromkeys(keys.values(), "x")

    async def handler(params):
        return [{"a": (MappingProxyType(result), result)}]

    frames = asyncio.run(run_call(handler, leased=Encoding()))
    assert frames[-1].result == [{"a": [told, told]}]


@pytest.mark.regression("worker 97")
@pytest.mark.parametrize("plain", [True, False])
def test_a_handler_that_kept_its_parameters_in_a_context_variable_and_returned_is_finished(plain):
    current: ContextVar[FunctionCallParams] = ContextVar("current")

    async def handler(params):
        current.set(params)

    frames = asyncio.run(run_call((lambda params: handler(params)) if plain else handler, is_async=not plain))
    assert outcomes(frames) == ["FunctionCallInProgressFrame", "FunctionCallResultFrame"]


@pytest.mark.parametrize(
    "result",
    [b"x", {"late"}, iter([1]), object(), Booking, {(1, 2): 1}, {"price": math.nan}],
)
def test_what_has_no_json_fails_its_call(result):
    async def handler(params):
        return result

    frames = asyncio.run(run_call(handler, leased=Encoding()))
    assert outcomes(frames) == ["FunctionCallInProgressFrame", "ErrorFrame", "failed"]


@pytest.mark.regression("worker 6")
def test_a_result_in_between_that_raises_when_it_is_encoded_is_refused_and_its_call_goes_on():
    told = []

    async def handler(params):
        between = FunctionCallResultProperties(is_final=False)
        try:
            await params.result_callback(ClosedSession(OSError("Closed.")), properties=between)
        except ResultRefusedError as refusal:
            told.append(str(refusal))
        return "done"

    frames = asyncio.run(run_call(handler, Options(cancel_on_interruption=False), leased=Encoding()))
    assert outcomes(frames) == ["FunctionCallInProgressFrame", "FunctionCallResultFrame"]
    assert (frames[-1].result, len(told)) == ("done", 1)


@pytest.mark.regression("worker 10")
def test_the_time_to_fold_a_result_counts_from_when_it_was_published(monkeypatch):
    """The broker was away for longer than folding may take."""
    monkeypatch.setattr(notifications, "FOLDED_SECONDS", 0.0)
    called = asyncio.Event()

    class Away(InMemory):
        async def publish(self, context_id, *frames, causation_id):
            if frames[0].type == "FunctionCallResultFrame":
                # A limit that had begun before this is over now.
                await turns()
                monkeypatch.setattr(notifications, "FOLDED_SECONDS", IN_PROCESS)
                statuses.is_published.set()
            await super().publish(context_id, *frames, causation_id=causation_id)

    class Folds(OneCall):
        is_published = asyncio.Event()

        @asynccontextmanager
        async def folding(self, context_id, frame_id, call=None, condition=None):
            if call is not None:
                async with super().folding(context_id, frame_id) as folded:
                    yield folded
                return
            answering = asyncio.create_task(self._answer())
            yield answering
            answering.cancel()

        async def _answer(self):
            await self.is_published.wait()
            return self._first

    async def hook():
        called.set()

    async def handler(params):
        await params.result_callback("x", properties=FunctionCallResultProperties(on_context_updated=hook))

    statuses = Folds()

    async def run():
        await run_call(handler, statuses=statuses, leased=Away())
        return called.is_set()

    assert asyncio.run(run())


@pytest.mark.regression("worker 60")
def test_a_hook_of_a_result_that_exits_ends_no_service(caplog):
    async def hook():
        raise SystemExit(1)

    async def handler(params):
        await params.result_callback("x", properties=FunctionCallResultProperties(on_context_updated=hook))

    frames = asyncio.run(run_call(handler))
    assert outcomes(frames)[-1] == "FunctionCallResultFrame"
    events = [record.frameledger["event"] for record in caplog.records]
    assert events == ["call.context_updated_failed"]


@pytest.mark.regression("call a")
@pytest.mark.parametrize("plain", [True, False])
def test_a_handler_that_reports_and_then_raises_has_its_result_and_its_error_on_the_log(plain):
    async def handler(params):
        await params.result_callback("paid")
        raise RuntimeError("the receipt could not be printed")

    def in_a_thread(params):
        params.result_callback("paid")
        raise RuntimeError("the receipt could not be printed")

    frames = asyncio.run(run_call(in_a_thread if plain else handler, is_async=not plain))
    assert outcomes(frames) == ["FunctionCallInProgressFrame", "FunctionCallResultFrame", "ErrorFrame"]
    assert frames[1].result == "paid"
    assert "the receipt could not be printed" in frames[2].message


@pytest.mark.regression("call a")
def test_a_handler_that_raises_when_it_is_stopped_has_its_error_on_the_log():
    lifecycles: list[CallLifecycle] = []

    async def handler(params):
        lifecycles[0].request_stop("obsolete")
        try:
            await asyncio.Event().wait()
        finally:
            raise RuntimeError("the door is stuck")

    statuses = OneCall(interrupted=7)
    frames = asyncio.run(
        run_call(handler, Options(safe_to_retry=True), statuses=statuses, meanwhile=lifecycles.append)
    )
    assert outcomes(frames) == ["FunctionCallInProgressFrame", "FunctionCallCancelFrame", "ErrorFrame"]
    assert "the door is stuck" in frames[2].message


@pytest.mark.regression("fault 6")
@pytest.mark.parametrize("safe", [True, False])
def test_a_result_that_the_broker_refuses_is_ambiguous_and_never_told_as_failed(safe, monkeypatch):
    monkeypatch.setattr(worker_publisher, "RETRY_SECONDS", 0.0)
    told = []

    async def pay(params):
        try:
            await params.result_callback("paid")
        except ResultRefusedError as error:
            told.append(str(error))

    def refused(frame):
        is_result = frame.type == "FunctionCallResultFrame" and frame.settled_as is None
        return RecordRefusedError("Not authorized to write.", [None]) if is_result else None

    frames = asyncio.run(run_call(pay, Options(safe_to_retry=safe), leased=InMemory(refused)))
    assert outcomes(frames) == ["FunctionCallInProgressFrame", "ErrorFrame", "ambiguous"]
    assert "Not authorized to write." in frames[1].message
    assert "ended without a result" in told[0]


@pytest.mark.regression("fault 6")
def test_a_result_that_is_refused_for_a_moment_is_taken(monkeypatch):
    monkeypatch.setattr(worker_publisher, "RETRY_SECONDS", 0.0)
    refusals = [RecordRefusedError("There is no leader.", [None])] * 2

    async def pay(params):
        return "paid"

    def refused(frame):
        return refusals.pop() if refusals and frame.type == "FunctionCallResultFrame" else None

    frames = asyncio.run(run_call(pay, leased=InMemory(refused)))
    assert (outcomes(frames)[-1], frames[-1].result) == ("FunctionCallResultFrame", "paid")


@pytest.mark.regression("fault 6")
def test_a_result_that_is_too_large_is_told_as_finished_and_too_large():
    async def look(params):
        return "much"

    def refused(frame):
        is_result = frame.type == "FunctionCallResultFrame" and frame.settled_as is None
        return TooLargeError("The record is too large.", [None]) if is_result else None

    frames = asyncio.run(run_call(look, leased=InMemory(refused)))
    assert (outcomes(frames)[-1], frames[-1].result) == ("failed", call_words.too_large("f"))


@pytest.mark.regression("fault 6")
@pytest.mark.parametrize("error", [RecordRefusedError, LeaseLostError])
def test_a_start_that_is_refused_ends_nothing_but_its_own_call(error, monkeypatch):
    """The task that publishes it runs in the task group of the whole service."""
    monkeypatch.setattr(worker_publisher, "RETRY_SECONDS", 0.0)
    refusals = [error("Not authorized.", [None]) if error is RecordRefusedError else error()] * 5

    async def pay(params):
        return "paid"

    def refused(frame):
        return refusals.pop() if refusals else None

    ending: list[str] = []
    frames = asyncio.run(
        run_call(
            pay, statuses=NeverFolded(), leased=InMemory(refused), ending=ending, timeout_secs=scaled(1.0)
        )
    )
    if error is RecordRefusedError:
        assert outcomes(frames) == ["FunctionCallInProgressFrame", "FunctionCallCancelFrame"]
    else:
        assert (outcomes(frames), ending) == ([], ["release"])


@pytest.mark.regression("fault 6")
def test_a_start_that_is_too_large_and_whose_cancel_is_refused_ends_nothing_but_its_own_call(monkeypatch):
    monkeypatch.setattr(worker_publisher, "RETRY_SECONDS", 0.0)
    refusals = [RecordRefusedError("Not authorized.", [None])] * 5

    def refused(frame):
        if frame.type == "FunctionCallInProgressFrame":
            return TooLargeError("The record is too large.", [None])
        return refusals.pop() if refusals else None

    async def pay(params):
        return "paid"

    frames = asyncio.run(run_call(pay, statuses=NeverFolded(), leased=InMemory(refused)))
    assert outcomes(frames) == ["ErrorFrame", "FunctionCallCancelFrame"]
