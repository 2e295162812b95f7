"""Where what an application wants the model to know stands among the new messages of a request of AG-UI."""

import pytest

from frameledger_services.gateway.ag_ui import history, run_input
from frameledger_services.gateway.ag_ui.request_frames import RequestFrames
from frameledger_services.store.conversation_state import Thread

TOLD = {"role": "developer", "content": "The application says:\n- page: home"}
USER = {"role": "user", "content": "Hi."}
CALL = {
    "role": "assistant",
    "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "paint", "arguments": "{}"}}],
}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "done"}


@pytest.mark.regression("gateway 8")
@pytest.mark.parametrize(
    ("said", "stored"),
    [
        ([], [TOLD]),
        ([USER], [TOLD, USER]),
        ([USER, CALL, RESULT], [USER, CALL, RESULT, TOLD]),
        ([USER, CALL, RESULT, USER], [USER, CALL, RESULT, TOLD, USER]),
    ],
)
def test_it_never_comes_between_a_call_and_its_result(said, stored):
    wanted = run_input.read(
        b'{"threadId":"t","runId":"r","messages":[],"context":[{"description":"page","value":"home"}]}'
    )
    ids = [str(number) for number in range(len(said))]
    messages, known = RequestFrames(wanted, ()).with_context(Thread(), history.Plan("append", said, ids))
    assert messages == stored
    assert [one for one in known if one is not None] == ids
    assert known[messages.index(TOLD)] is None
