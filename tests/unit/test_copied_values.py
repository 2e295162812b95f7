"""Values that the fold copies field by field, in a third of the time of `replace`: no field is forgotten."""

from dataclasses import fields
from types import SimpleNamespace

import pytest

from frameledger.evolve import inputs, responses, runs
from frameledger.evolve.draft import Draft
from frameledger.evolve.state import Call, MessageCursor, Pace, Response, Run, Runs, Speech
from frameledger.frames import LLMTextFrame
from frameledger.values import replace


def filled(value_class, **chosen):
    """A value whose every field is other than its default."""
    return value_class(
        **{field.name: chosen.get(field.name, f"a {field.name}") for field in fields(value_class)}
    )


def next_stage():
    call = filled(Call)
    return call.in_stage("next", "runs"), replace(call, stage="next", running="runs")


def next_attempt():
    run = filled(Run)
    return run.in_attempt(3, "c"), replace(run, attempt=3, positions=(), claim="c")


def open_run():
    before = filled(Runs)
    draft = SimpleNamespace(runs=before)
    runs.put(draft, "another")
    return draft.runs, replace(before, open="another")


def kept_text():
    response = filled(Response, stays=False)
    before = filled(Speech, response=response)
    draft = SimpleNamespace(speech=before)
    Draft.keep_said(draft)
    return draft.speech, replace(before, said=None, response=replace(response, stays=True))


def said_text():
    response = filled(Response, text=None, stays=True)
    before = filled(Speech, response=response)
    draft = SimpleNamespace(speech=before, terms=SimpleNamespace(recording=True), runs=Runs())
    responses.said(draft, LLMTextFrame(text="more"), True)
    return draft.speech.response, replace(response, text=draft.speech.response.text)


def another_message():
    before = filled(MessageCursor, next_position=7, bytes=100)
    draft = SimpleNamespace(place=before, changes=[], version=1)
    Draft._add(draft, {}, 20, None)
    return draft.place, replace(before, next_position=8, bytes=120)


def another_text():
    before = filled(MessageCursor, bytes=100)
    draft = SimpleNamespace(place=before, changes=[], version=1)
    Draft._replace(draft, 3, {}, 20)
    return draft.place, replace(before, bytes=120)


def no_rounds():
    before = filled(Pace)
    draft = SimpleNamespace(pace=before)
    inputs.noted(draft)
    return draft.pace, replace(before, rounds=0, round_of=None)


@pytest.mark.parametrize(
    "copied",
    [next_stage, next_attempt, open_run, kept_text, said_text, another_message, another_text, no_rounds],
)
def test_a_copy_has_every_field_of_the_value(copied):
    found, expected = copied()
    assert found == expected
