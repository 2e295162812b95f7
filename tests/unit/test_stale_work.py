"""Open work that is closed because it is too old."""

from uuid import UUID

import pytest

from frameledger.effects import CallFunction
from frameledger.frames import FunctionCallCancelFrame
from frameledger.record import MAX_VALUE_BYTES, decode
from frameledger_services.projector.stale_work import Closing, open_work_rows
from frameledger_services.store.held_effects import UnclaimedWork

CLOSING = Closing("frameledger/projector", "late", "It was requested too long ago.")


def unclaimed(function_name):
    effect = CallFunction.of("call-1", 2, 2, 0, "c1", function_name, None, UUID(int=1))
    return UnclaimedWork(effect, generation=1, offset=7, is_requested=True, is_closed=False)


@pytest.mark.regression("fault 60")
@pytest.mark.parametrize("length", [1, MAX_VALUE_BYTES // 6 - 100])
def test_a_call_is_closed_however_long_its_name_is(length):
    # A lone surrogate is six bytes in the frame that announced the call, and seven where it is written out again.
    name = (
        decode(
            b'{"type":"FunctionCallsStartedFrame","function_calls":[{"tool_call_id":"c1","arguments":{},'
            b'"function_name":"' + rb"\ud83d" * length + b'"}]}'
        )
        .function_calls[0]
        .function_name
    )
    [row] = open_work_rows("llm.frames", 0, {}, [unclaimed(name)], CLOSING)
    frame = decode(row.value)
    assert isinstance(frame, FunctionCallCancelFrame)
    assert (frame.tool_call_id, len(row.value) < 10_000) == ("c1", True)
