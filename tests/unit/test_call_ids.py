"""Which call ids are kept: those that are random and long enough to be unique."""

import pytest

from frameledger.frames import FunctionCallFromLLM
from frameledger_services.inference.call_ids import LONGEST, is_unique, with_unique_ids


@pytest.mark.parametrize(
    "tool_call_id",
    [
        "call_Ahf7Tj2k9sLqPz0xWm4Vb1Nc",
        "toolu_01A09q90qw90lq917835lq9",
        "chatcmpl-tool-0f3c2b1a9d8e4f7a8b6c5d4e3f2a1b0c",
        "call_0_7d3f1a2b-9c8e-4f60-b1a2-3c4d5e6f7a8b",
        "7d3f1a2b-9c8e-4f60-b1a2-3c4d5e6f7a8b",
    ],
)
def test_an_id_that_chance_has_drawn_is_unique(tool_call_id):
    assert is_unique(tool_call_id, "get_weather")


@pytest.mark.parametrize(
    ("tool_call_id", "function_name"),
    [
        ("call_0", "get_weather"),
        ("0", "get_weather"),
        ("call_y3kx", "get_weather"),
        ("functions.get_weather:0", "get_weather"),
        ("getWeatherForecastForTheNext7Days", "getWeatherForecastForTheNext7Days"),
        ("getWeatherForecastForTheNext7Days:1", "getWeatherForecastForTheNext7Days"),
        ("get_weather_get_weather_1", "get_weather"),
    ],
)
def test_an_id_that_counts_or_repeats_the_function_s_name_is_not(tool_call_id, function_name):
    assert not is_unique(tool_call_id, function_name)


def calls(*ids):
    return [FunctionCallFromLLM(function_name="look", tool_call_id=one, arguments={}) for one in ids]


def ids(*given, attempt="run:1:claim"):
    return [call.tool_call_id for call in with_unique_ids(calls(*given), attempt)]


def test_a_new_id_follows_from_run_attempt_and_place():
    first = ids("call_0", "call_1")
    assert first == ids("call_0", "call_1")
    assert len({*first, *ids("call_0", attempt="run:2:claim"), *ids("call_0", attempt="run:1:other")}) == 4


def test_of_two_calls_with_one_id_the_first_keeps_it():
    kept = "toolu_01A09q90qw90lq917835lq9"
    first, second = ids(kept, kept)
    assert first == kept
    assert second != kept


@pytest.mark.regression("repair 7")
def test_an_id_that_a_provider_would_have_to_shorten_is_another_one():
    longest = "call_" + "0f3c2b1a9d8e4f7a8b6c5d4e3f2a1b0c123"
    assert ids(longest) == [longest]
    [made] = ids("chatcmpl-tool-0f3c2b1a9d8e4f7a8b6c5d4e3f2a1b0c")
    assert len(made) <= LONGEST
    assert len(longest) == LONGEST
