"""The scripted model: which reply it chooses, the format of its file, and its pace."""

import asyncio
import json
from contextlib import aclosing

import pytest

from frameledger import async_tool_messages
from frameledger.context import LLMContext
from frameledger_services.providers import errors, script
from frameledger_services.providers.script import Reply, Script, ScriptError, Text, When
from frameledger_services.providers.scripted import ScriptedLLMService


def user(text):
    return {"role": "user", "content": text}


def call(name, tool_call_id="c"):
    function = {"name": name, "arguments": "{}"}
    return {
        "role": "assistant",
        "tool_calls": [{"id": tool_call_id, "type": "function", "function": function}],
    }


def result(content, tool_call_id="c"):
    return {"role": "tool", "tool_call_id": tool_call_id, "content": content}


SCRIPT = Script(
    replies=[
        Reply(when=When(user="weather"), say=[Text(text="weather")]),
        Reply(when=When(turn=2), say=[Text(text="second turn")]),
        Reply(when=When(result_of="search", result="nothing"), say=[Text(text="nothing found")]),
        Reply(when=When(result_of="search"), say=[Text(text="found")]),
        Reply(say=[Text(text="otherwise")]),
    ]
)


def said(*messages, given=SCRIPT):
    return asyncio.run(ScriptedLLMService(script=given).run_inference(LLMContext(messages)))


@pytest.mark.parametrize(
    ("messages", "wanted"),
    [
        ([user("The WEATHER?")], "weather"),
        ([user("a"), user("b")], "second turn"),
        ([user("a")], "otherwise"),
        ([], "otherwise"),
        ([user("weather"), call("search"), result('"nothing"')], "nothing found"),
        ([user("weather"), call("search"), result('"a lot"')], "found"),
        ([user("weather"), call("other"), result('"a lot"')], 'The result is: "a lot"'),
        ([user("weather"), call("search"), result("IN_PROGRESS")], "weather"),
        (
            [
                user("weather"),
                call("search"),
                async_tool_messages.build_started_message("c"),
                async_tool_messages.build_final_result_message("c", '"late"'),
            ],
            "found",
        ),
        ([call("search"), async_tool_messages.build_started_message("c"), user("weather")], "weather"),
    ],
)
def test_the_first_reply_that_fits_is_given(messages, wanted):
    assert said(*messages) == wanted


def test_without_a_script_it_repeats_what_it_heard():
    assert said(user("Good morning."), given=None) == "You said: Good morning."
    assert said(given=None) == "I am listening."


def test_a_reply_that_is_given_a_number_of_times_is_counted_for_each_request():
    failing = Reply(times=2, say=[script.Fail(fail="overloaded")])
    service = ScriptedLLMService(script=Script(replies=[failing, Reply(say=[Text(text="at last")])]))

    async def ask(text):
        try:
            return await service.run_inference(LLMContext([user(text)]))
        except errors.ProviderUnavailableError:
            return None

    async def all_of_them():
        return [await ask(text) for text in ("a", "a", "b", "a", "b", "b")]

    assert asyncio.run(all_of_them()) == [None, None, None, "at last", None, "at last"]


def test_equal_requests_get_equal_answers_and_ids_that_nobody_else_has():
    given = Script(replies=[Reply(say=[script.Call(call="f"), script.Call(call="f")])])

    async def announced(text):
        service = ScriptedLLMService(script=given)
        async with aclosing(service.answer(service.request(LLMContext([user(text)])))) as answer:
            return [frame async for frame in answer]

    first, again, other = [asyncio.run(announced(text)) for text in ("a", "a", "b")]
    assert first == again
    ids = [one.tool_call_id for frames in (first, other) for one in frames[0].function_calls]
    assert len(set(ids)) == 4


def test_a_limit_of_tokens_cuts_the_text_short():
    service = ScriptedLLMService(script=Script(replies=[Reply(say=[Text(text="one two three")])]))
    assert asyncio.run(service.run_inference(LLMContext([user("a")]), max_tokens=2)) == "one two"


def test_pieces_come_at_the_pace_of_the_script(monkeypatch):
    """Also if each wait takes longer than it should: what counts is the clock."""
    late = 0.001

    async def seconds():
        loop = asyncio.get_running_loop()
        began = now = loop.time()

        async def longer(delay):
            nonlocal now
            now += delay + late

        vars(loop)["time"] = lambda: now
        monkeypatch.setattr("frameledger_services.providers.scripted.asyncio.sleep", longer)
        service = ScriptedLLMService(script=Script(pace=200, replies=[Reply(say=[Text(text="a " * 20)])]))
        await service.run_inference(LLMContext([user("a")]))
        return now - began

    # Twenty words and the space after them.
    assert asyncio.run(seconds()) == pytest.approx(21 / 200 + late, abs=1e-6)


def test_the_example_at_the_top_of_the_module_is_a_script(tmp_path):
    example = script.__doc__.split("\n\n")[1]
    (tmp_path / "s.json").write_text(example, encoding="utf-8")
    read = script.read(tmp_path / "s.json")
    assert (read.pace, len(read.replies)) == (60, 4)
    assert read == Script.model_validate(json.loads(example))


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("nothing", "s.json is not a valid script"),
        ('{"replies": [{"say": [{"txt": "a"}]}]}', "replies.0.say.0: a step needs one of the keys text,"),
        ('{"replies": [{"say": [{"text": "a", "b": 1}]}]}', "replies.0.say.0.text.b"),
        ('{"replies": [{"when": {"user": "("}}]}', "is not a valid regular expression"),
        ('{"replies": [{"say": [{"fail": "badly"}]}]}', "overloaded"),
    ],
)
def test_a_file_that_is_no_script_is_refused_with_the_place(tmp_path, text, wanted):
    path = tmp_path / "s.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ScriptError) as refused:
        script.read(path)
    assert wanted in str(refused.value)


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(ScriptError, match="cannot be read"):
        script.read(tmp_path / "s.json")
