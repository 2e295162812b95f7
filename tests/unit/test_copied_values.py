"""Values that the fold copies field by field, in a third of the time of `replace`: no field is forgotten."""

from dataclasses import fields
from types import SimpleNamespace

import pytest

from frameledger.evolve import runs
from frameledger.evolve.draft import Draft
from frameledger.evolve.state import Call, Run, Runs, Speech
from frameledger.values import replace


def filled(value_class):
    """A value whose every field is other than its default."""
    return value_class(**{field.name: f"a {field.name}" for field in fields(value_class)})


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
    before = filled(Speech)
    draft = SimpleNamespace(speech=before)
    Draft.keep_said(draft)
    return draft.speech, replace(before, said=None)


@pytest.mark.parametrize("copied", [next_stage, next_attempt, open_run, kept_text])
def test_a_copy_has_every_field_of_the_value(copied):
    found, expected = copied()
    assert found == expected
