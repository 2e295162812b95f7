"""What the handlers of captured frames do with streamed text."""

import pytest
from tests.support.pipecat_frames import LLMTextFrame

from frameledger_services.pipecat import capture
from frameledger_services.pipecat.capture import ASSISTANT, LLM, ON_THE_LOG, Capture
from frameledger_services.pipecat.captured_frame import GENERATED, ModelService


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
