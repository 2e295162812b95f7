"""How captured frames of streamed text are handled."""

import pytest
from tests.support.pipecat_frames import LLMTextFrame

from frameledger_services.pipecat import capture
from frameledger_services.pipecat.capture import ON_THE_LOG, Capture
from frameledger_services.pipecat.captured_frame import ASSISTANT, GENERATED, LLM, ModelService
from frameledger_services.pipecat.captured_items import BACKLOG, MAX_JOINED


def fails(error: BaseException) -> None:
    raise error


def pass_through(places: list[capture.HandlersByClass], frame: LLMTextFrame) -> None:
    for handlers in places:
        before, _ = handlers[LLMTextFrame]
        if before is not None:
            before(frame)


@pytest.mark.parametrize("has_passed_one", [False, True], ids=["from the start", "later"])
def test_a_token_that_passes_two_aggregators_of_one_context_is_recorded_once(has_passed_one):
    captured = Capture(fails)
    first = captured.handlers(ASSISTANT, pushes=False)
    if has_passed_one:
        pass_through([first], LLMTextFrame("Before."))
        captured.items.clear()
    second = captured.handlers(ASSISTANT, pushes=False)
    token = LLMTextFrame("One")
    pass_through([first, second], token)
    assert [(at, frame) for _, _, at, frame, _ in captured.items] == [(ASSISTANT, token)]


def test_a_token_of_a_pipeline_that_speaks_is_recorded_where_the_model_pushes_it():
    captured = Capture(fails)
    captured.speaks = True
    model = captured.handlers(LLM, pushes=True, service=ModelService())
    token = LLMTextFrame("One")
    pass_through([model, captured.handlers(ASSISTANT, pushes=False)], token)
    assert [(at, frame) for _, _, at, frame, _ in captured.items] == [(GENERATED, token)]


def test_a_token_that_came_from_the_log_is_not_recorded_again():
    captured = Capture(fails)
    handlers = captured.handlers(ASSISTANT, pushes=False)
    pass_through([handlers], LLMTextFrame("One", metadata={ON_THE_LOG: "id"}))
    token = LLMTextFrame("Two", metadata={"mine": 1})
    pass_through([handlers], token)
    assert [frame for _, _, _, frame, _ in captured.items] == [token]


def test_tokens_beyond_the_bound_are_counted(monkeypatch):
    monkeypatch.setattr(capture, "MAX_CAPTURED", 2)
    captured = Capture(fails)
    handlers = captured.handlers(ASSISTANT, pushes=False)
    for _ in range(5):
        pass_through([handlers], LLMTextFrame("One"))
    assert (len(captured.items), captured.lost) == (3, 2)


def test_in_a_dense_stream_a_token_gets_a_number_where_a_frame_begins():
    captured = Capture(fails)
    handlers = captured.handlers(ASSISTANT, pushes=False)
    tokens = [LLMTextFrame(f"{number} ") for number in range(2 * MAX_JOINED + 1)]
    for token in tokens:
        pass_through([handlers], token)
    numbered = [place for place, entry in enumerate(captured.items) if type(entry) is tuple]
    assert numbered == [*range(BACKLOG + 1), MAX_JOINED, 2 * MAX_JOINED]
    found = [captured.items.take(joined=True) for _ in range(3)]
    assert not captured.items
    assert [frame.text for _, _, _, frame, _ in found] == [
        "".join(str(token.text) for token in tokens[begins : begins + MAX_JOINED])
        for begins in (0, MAX_JOINED, 2 * MAX_JOINED)
    ]
    assert [sequence for sequence, _, _, _, _ in found] == [0, BACKLOG + 1, BACKLOG + 2]
    times = [ns for _, ns, _, _, _ in found]
    assert times == sorted(times)
