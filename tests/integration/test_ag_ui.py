"""AG-UI front ends: the official client, a scripted model and real functions; the events, and the stored
conversation."""

import asyncio
import json
import re
from contextlib import asynccontextmanager, suppress

import httpx
import pytest
from starlette.requests import Request
from tests.bounds import ON_SERVERS
from tests.support.ag_ui import Consumer
from tests.support.ag_ui_stage import (
    ag_ui_front_end,  # noqa: F401  # a fixture
    ag_ui_package,  # noqa: F401  # a fixture
    ag_ui_stage,  # noqa: F401  # a fixture
    types,
    words,
)
from tests.support.killed_request import killed
from tests.support.polling import look_again
from tests.support.tiers import first, long

from frameledger.frames import InterruptionFrame, LLMMessagesAppendFrame
from frameledger_services.client import SyncClient
from frameledger_services.embedded import ports
from frameledger_services.gateway.access import caller
from frameledger_services.gateway.ag_ui import routes
from frameledger_services.gateway.ag_ui.asking import Question
from frameledger_services.gateway.ag_ui.request_frames import RequestFrames
from frameledger_services.gateway.ag_ui.run_input import RunInput
from frameledger_services.gateway.problems import ProblemError
from frameledger_services.gateway.service import connected, serve


def test_a_front_end_converses_and_holds_what_is_stored(front_end, stage):
    told = front_end.do("talk/1", say="Is there a night train?", forwardedProps={"theme": "dark"})
    assert told["outcome"] == "success"
    order = types(told)
    assert order[:2] == ["RUN_STARTED", "MESSAGES_SNAPSHOT"]
    assert order.index("REASONING_END") < order.index("TEXT_MESSAGE_START") < order.index("RUN_FINISHED")
    started, finished = told["events"][0], told["events"][-1]
    assert (started["threadId"], started["protocolVersion"]) == ("talk/1", "1.0")
    [usage] = finished["usage"]
    assert {name: count for name, count in usage.items() if name.endswith("Tokens")} == {
        "inputTokens": 9,
        "outputTokens": 4,
        "cachedInputTokens": 2,
        "totalTokens": 13,
    }
    [(run_id,)] = stage.rows("SELECT run_id FROM runs WHERE context_id = 'talk/1'")
    assert told["messages"][-1] == {"id": run_id, "role": "assistant", "content": "Yes, at 22:40."}
    assert words(told)[-2:] == [("reasoning", "Let me think."), ("assistant", "Yes, at 22:40.")]
    [(about,)] = stage.rows(
        "SELECT payload->'metadata'->'ag_ui' FROM frames WHERE context_id = 'talk/1' AND version = 1"
    )
    assert about["run_id"] == started["runId"]
    assert about["forwarded_props"] == {"theme": "dark"}
    assert about["message_ids"] == [told["messages"][0]["id"]]

    again = front_end.do("talk/1", say="Thanks.")
    assert words(again)[-2:] == [("user", "Thanks."), ("assistant", "You said: Thanks.")]
    assert [one["id"] for one in again["messages"]][:3] == [one["id"] for one in told["messages"]]
    assert [one["role"] for one in stage.stored("talk/1") if "role" in one] == ["user", "assistant"] * 2
    assert stage.eras("talk/1") == 1
    assert front_end.warnings() == []


def test_functions_that_run_here_are_shown_with_their_results(front_end, stage):
    told = front_end.do("late", say="Are we late?")
    assert told["outcome"] == "success"
    assert [kind for kind in types(told) if kind.startswith("TOOL_CALL")] == [
        "TOOL_CALL_START",
        "TOOL_CALL_ARGS",
        "TOOL_CALL_END",
        "TOOL_CALL_RESULT",
    ]
    # The stored messages equal the streamed ones, so the snapshot is not sent again.
    assert types(told).count("MESSAGES_SNAPSHOT") == 1
    question, look, call, result, answer = told["messages"]
    assert (question["role"], look["content"]) == ("user", "I look.")
    assert call["toolCalls"][0]["function"] == {"name": "train_position", "arguments": "{}"}
    assert json.loads(result["content"]) == {"late_minutes": 25, "arrival": "06:31"}
    assert answer["content"] == "By twenty-five minutes."
    # The client's history equals the stored one, so nothing in it counts as an edit.
    front_end.do("late", say="Thanks.")
    assert stage.eras("late") == 1
    assert [one["role"] for one in stage.stored("late")] == [
        *("user", "assistant", "assistant", "tool", "assistant"),
        *("user", "assistant"),
    ]


def test_a_call_that_waits_for_a_person_interrupts_the_run_and_is_answered_by_the_next_one(front_end, stage):
    told = front_end.do("seat", say="Keep me a seat.")
    assert told["outcome"] == "interrupt"
    [interrupt] = told["interrupts"]
    [call] = told["messages"][-1]["toolCalls"]
    assert (interrupt["reason"], interrupt["message"]) == ("tool_call", "the purser")
    assert interrupt["toolCallId"] == call["id"]
    assert interrupt["expiresAt"]
    # The official client asks for an answer before anything else.
    refused = front_end.do("seat", say="And?")
    assert "pending interrupt" in refused["error"]

    answer = {"interruptId": interrupt["id"], "status": "resolved", "payload": {"deck": "upper"}}
    resumed = front_end.do("seat", resume=[answer], messages=told["messages"])
    assert resumed["outcome"] == "success"
    assert "TOOL_CALL_START" not in types(resumed)
    [result] = [event for event in resumed["events"] if event["type"] == "TOOL_CALL_RESULT"]
    assert (result["toolCallId"], json.loads(result["content"])) == (call["id"], {"deck": "upper"})
    assert words(resumed)[-2:] == [("tool", '{"deck":"upper"}'), ("assistant", "It is yours.")]
    assert stage.rows("SELECT status, result FROM tool_calls WHERE context_id = 'seat'") == [
        ("done", {"deck": "upper"})
    ]
    assert stage.eras("seat") == 1


@pytest.mark.long
def test_a_front_end_does_itself_what_waits_for_it_and_answers_with_a_tool_message(front_end, stage):
    tools = [{"name": "keep_seat", "description": "Ask the passenger.", "parameters": {"type": "object"}}]
    told = front_end.do("my-seat", say="Keep me a seat.", tools=tools)
    assert (told["outcome"], told["interrupts"]) == ("success", [])
    assert [kind for kind in types(told) if kind.startswith("TOOL_CALL")] == [
        "TOOL_CALL_START",
        "TOOL_CALL_ARGS",
        "TOOL_CALL_END",
    ]
    [call] = told["messages"][-1]["toolCalls"]
    mine = {"id": "mine", "role": "tool", "toolCallId": call["id"], "content": '{"deck": "lower"}'}
    done = front_end.do("my-seat", messages=[*told["messages"], mine], tools=tools)
    assert done["outcome"] == "success"
    assert words(done)[-2:] == [("tool", '{"deck":"lower"}'), ("assistant", "It is yours.")]
    assert stage.rows("SELECT status, result FROM tool_calls WHERE context_id = 'my-seat'") == [
        ("done", {"deck": "lower"})
    ]
    # The history also equals the stored one if it has the message in the form in which the front end wrote it.
    said = {"id": "u9", "role": "user", "content": "When does the night train leave?"}
    front_end.do("my-seat", messages=[*told["messages"], mine, done["messages"][-1], said], tools=tools)
    assert stage.stored("my-seat")[-1]["content"] == "Yes, at 22:40."
    assert stage.eras("my-seat") == 1


class Raced(Question):
    """A question of this process. Another one is asked between its read and its publish."""

    other: RunInput

    async def _without_abandoned(self, *what):
        await asking(self.dependencies, self.other).ask()
        return await super()._without_abandoned(*what)


class CutShort(Question):
    """A question whose first publish ends with the error that its frame is not visible yet."""

    async def _publish(self, frame, expected):
        await super()._publish(frame, expected)
        raise ProblemError("not-visible-yet", "It is on the log.")


def asking(dependencies, wanted, kind=Question):
    scope = {"type": "http", "method": "POST", "path": "/", "headers": []}
    caller.set_caller(scope, caller.LOOPBACK)
    return kind(dependencies, Request(scope), wanted, RequestFrames(wanted, routes.client_functions(wanted)))


def in_this_process(stage, work):
    async def run():
        async with asyncio.timeout(ON_SERVERS), connected(stage.settings, asyncio.Event()) as dependencies:
            return await work(dependencies)

    return asyncio.run(run())


def told_of(stage, thread, says):
    """Returns the messages that a client has of a conversation that it began with `says`, and the ids of the calls in
    them."""
    consumer = Consumer()
    body = {"threadId": thread, "runId": "r1", "messages": [{"id": "u1", "role": "user", "content": says}]}
    consumer.take_all(events_of(stage.post(**body)))
    known = [one for one in consumer.messages.values() if one["role"] != "reasoning"]
    return known, [call["id"] for one in known for call in one.get("toolCalls", ())]


def tool_message(call, deck):
    return {
        "id": f"mine-{call}-{deck}",
        "role": "tool",
        "toolCallId": call,
        "content": f'{{"deck":"{deck}"}}',
    }


def run_input(thread, run, messages, **more):
    return RunInput.model_validate({"threadId": thread, "runId": run, "messages": messages, **more})


@pytest.mark.long
@pytest.mark.parametrize("says", [None, "Thanks."])
def test_who_answers_a_call_a_moment_after_another_takes_nothing_out_of_the_history(stage, says):
    thread = f"raced-{says}"
    known, [call] = told_of(stage, thread, "Keep me a seat.")
    words = [{"id": "u2", "role": "user", "content": says}] if says else []
    late = run_input(thread, "late", [*known, tool_message(call, "lower"), *words])

    async def work(dependencies):
        question = asking(dependencies, late, Raced)
        object.__setattr__(
            question, "other", run_input(thread, "first", [*known, tool_message(call, "upper")])
        )
        return await question.ask()

    asked = in_this_process(stage, work)
    assert asked.run_id == "late"
    # Its run shows the result that the other question brought, also if it is requested again.
    for _ in range(2):
        consumer = Consumer()
        consumer.take_all(events_of(stage.post(**late.model_dump(by_alias=True, exclude_none=True))))
        assert consumer.messages[f"result-{call}"]["content"] == '{"deck":"upper"}'
    query = "SELECT status, result FROM tool_calls WHERE context_id = %s"
    assert stage.rows(query, thread) == [("done", {"deck": "upper"})]
    assert stage.eras(thread) == 1
    stored = [one for one in stage.stored(thread) if one.get("role") in ("user", "tool")]
    assert [one["content"] for one in stored] == [
        *("Keep me a seat.", '{"deck":"upper"}'),
        *(one["content"] for one in words),
    ]
    assert not {"LLMRunFrame", "LLMMessagesUpdateFrame"} & set(types_of(stage, thread))


@pytest.mark.long
def test_a_run_that_was_cut_short_after_its_first_answer_says_the_rest_when_it_is_asked_for_again(stage):
    known, calls = told_of(stage, "cut-short", "Keep me two seats.")
    assert len(calls) == 2
    answers = [tool_message(call, deck) for call, deck in zip(calls, ("upper", "lower"), strict=True)]
    # The first call has two messages: the last one counts, and neither stays among the messages.
    answers.insert(0, tool_message(calls[0], "none"))
    words = {"id": "u2", "role": "user", "content": "Is there a night train?"}
    body = {"threadId": "cut-short", "runId": "r2", "messages": [*known, *answers, words]}
    wanted = RunInput.model_validate(body)

    async def work(dependencies):
        with pytest.raises(ProblemError, match="on the log"):
            await asking(dependencies, wanted, CutShort).ask()

    in_this_process(stage, work)
    results = (
        "SELECT status, result FROM tool_calls WHERE context_id = 'cut-short' ORDER BY requested_version"
    )
    assert [status for status, _ in stage.rows(results)] == ["done", "waiting"]
    events_of(stage.post(**body))
    assert stage.rows(results) == [("done", {"deck": "upper"}), ("done", {"deck": "lower"})]
    said = [one["content"] for one in stage.stored("cut-short") if one.get("role") in ("user", "tool")]
    assert said == ["Keep me two seats.", '{"deck":"upper"}', '{"deck":"lower"}', words["content"]]
    assert stage.eras("cut-short") == 1
    count = len(types_of(stage, "cut-short"))
    events_of(stage.post(**body))
    assert len(types_of(stage, "cut-short")) == count


def types_of(stage, context_id):
    query = "SELECT type FROM frames WHERE context_id = %s ORDER BY version"
    return [kind for (kind,) in stage.rows(query, context_id)]


@pytest.mark.long
def test_an_interrupt_that_nobody_answers_stays_and_one_that_is_abandoned_is_cancelled(front_end, stage):
    told = front_end.do("no-seat", say="Keep me a seat.")
    [interrupt] = told["interrupts"]
    said = [*told["messages"], {"id": "u2", "role": "user", "content": "Hm."}]
    other = stage.post(threadId="no-seat", runId="r2", messages=said)
    consumer = Consumer()
    consumer.take_all(events_of(other))
    assert consumer.outcome["type"] == "interrupt"
    assert [one["id"] for one in consumer.outcome["interrupts"]] == [interrupt["id"]]
    assert consumer.messages["u2"]["content"] == "Hm."

    given_up = {"interruptId": interrupt["id"], "status": "cancelled"}
    body = {"threadId": "no-seat", "runId": "r3", "messages": list(consumer.messages.values())}
    first = events_of(stage.post(**body, resume=[given_up]))
    assert first[-1]["outcome"] == {"type": "success"}
    assert stage.rows("SELECT status FROM tool_calls WHERE context_id = 'no-seat'") == [("cancelled",)]
    # The same request again gives the same run, and a result that is sent again requests none.
    count = stage.rows("SELECT count(*) FROM frames WHERE context_id = 'no-seat'")
    assert events_of(stage.post(**body, resume=[given_up])) == first
    consumer = Consumer()
    consumer.take_all(first)
    known = [one for one in consumer.messages.values() if one["role"] != "reasoning"]
    again = stage.post(threadId="no-seat", runId="r4", messages=known, resume=[given_up])
    assert [event["type"] for event in events_of(again)] == [
        "RUN_STARTED",
        "MESSAGES_SNAPSHOT",
        "RUN_FINISHED",
    ]
    assert stage.rows("SELECT count(*) FROM frames WHERE context_id = 'no-seat'") == count


def events_of(response):
    assert response.status_code == 200, response.text
    lines = response.text.split("\n")
    return [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: ")]


@pytest.mark.long
def test_who_stops_a_run_and_asks_again_goes_on_from_what_was_shown(front_end, stage):
    told = front_end.do("stop", say="Please recite.", stop="verse-3", cut=True)
    assert told["outcome"] is None
    said = front_end.do("stop", say="Thanks.")
    assert words(said)[-1] == ("assistant", "You said: Thanks.")
    assert stage.runs("stop") == ["interrupted", "ended"]
    assert [one["role"] for one in stage.stored("stop")] == ["user", "assistant", "user", "assistant"]
    assert stage.eras("stop") == 1
    cut = stage.stored("stop")[1]["content"]
    assert cut.startswith("verse-1 verse-2 verse-3")
    assert "verse-3999" not in cut


@pytest.mark.long
def test_a_client_that_was_cut_off_comes_back_to_its_run(front_end, stage):
    cut = front_end.do("cut", say="Please count.", stop="number-3", cut=True)
    told = front_end.do("cut", connect=True)
    assert told["outcome"] == "success"
    assert told["events"][0]["runId"] == cut["events"][0]["runId"]
    assert told["messages"][0]["id"] == cut["messages"][0]["id"]
    assert told["messages"][-1]["content"].endswith("number-299")
    assert stage.runs("cut") == ["ended"]
    # The part of the answer that the client had was replaced by a snapshot, not repeated.
    assert len(told["messages"]) == 2
    [(version,)] = stage.rows("SELECT version FROM contexts WHERE context_id = 'cut'")
    all_of_it = httpx.get(f"{stage.url}/cut", headers={"Last-Event-ID": str(version)})
    assert all_of_it.status_code == 204


@asynccontextmanager
async def two_gateways(stage, **settings):
    """Yields the addresses of two gateways in this process."""
    stopping, addresses = asyncio.Event(), []
    async with asyncio.timeout(ON_SERVERS), asyncio.TaskGroup() as tasks:
        for _ in range(2):
            port = ports.choose(0)
            about = {"gateway_ag_ui": True, "gateway_port": port, **settings}
            tasks.create_task(serve(stage.settings.model_copy(update=about), stopping))
            addresses.append(f"http://127.0.0.1:{port}/v1/ag-ui")
        async with httpx.AsyncClient(timeout=ON_SERVERS) as http:
            for address in addresses:
                while True:
                    with suppress(httpx.ConnectError):
                        await http.get(address.replace("/v1/ag-ui", "/livez"))
                        break
                    await look_again()
            yield http, addresses
        stopping.set()


def asks(thread, run, says):
    return {
        "threadId": thread,
        "runId": run,
        "messages": [{"id": f"m-{run}", "role": "user", "content": says}],
    }


async def lines_until(lines, word):
    async for line in lines:
        if word in line:
            return line
    raise AssertionError(f"It ended without {word}.")


async def verse(lines, first=0):
    """Returns the number of the next verse in these lines that is not below `first`."""
    async for line in lines:
        numbers = re.findall(r"verse-(\d+)", line)
        if numbers and int(numbers[-1]) >= first:
            return int(numbers[-1])
    raise AssertionError(f"It ended before verse {first}.")


@pytest.mark.regression("gateway 13")
def test_a_client_comes_back_to_another_gateway_and_goes_on_with_its_run(stage):
    marked = """
        SELECT count(*) >= 2 FROM pg_locks JOIN pg_database ON pg_database.oid = database
        WHERE locktype = 'advisory' AND mode = 'ShareLock' AND datname = current_database()
    """

    async def run():
        async with two_gateways(stage, gateway_ag_ui_reconnect_secs=0.1) as (http, (first, second)):
            request = http.build_request("POST", first, json=asks("moved", "r1", "Please recite."))
            left = await http.send(request, stream=True)
            # The response is closed with the last reference to its lines.
            told = left.aiter_lines()
            await lines_until(told, "verse-3")
            async with http.stream("GET", f"{second}/moved") as back:
                lines = back.aiter_lines()
                assert '"r1"' in await lines_until(lines, "RUN_STARTED")
                await asyncio.to_thread(stage.until, marked)
                await left.aclose()
                # Long after the first gateway would have interrupted it.
                await verse(lines, await verse(lines) + 150)
                assert stage.runs("moved") == ["open"]
            # Now it has no client anywhere.
            await asyncio.to_thread(
                stage.until, "SELECT status = 'interrupted' FROM runs WHERE context_id = 'moved'"
            )

    asyncio.run(run())


@pytest.mark.long
@pytest.mark.regression("gateway 13")
def test_a_client_that_stops_its_run_is_answered_at_once_by_another_gateway(stage):
    async def run():
        async with two_gateways(stage, gateway_ag_ui_reconnect_secs=600) as (http, (first, second)):
            async with http.stream("POST", first, json=asks("balanced", "r1", "Please recite.")) as left:
                await lines_until(left.aiter_lines(), "verse-3")
            answer = await http.post(second, json=asks("balanced", "r2", "Is there a night train?"))
            return answer.status_code, answer.text

    status, text = asyncio.run(run())
    assert status == 200, text
    assert '"success"' in text
    assert stage.runs("balanced") == ["interrupted", "ended"]


@pytest.mark.long
def test_a_run_that_its_client_has_left_is_interrupted_after_a_while(front_end, stage):
    front_end.do("left", say="Please recite.", stop="verse-3", cut=True)
    stage.until("SELECT count(*) = 1 FROM runs WHERE context_id = 'left' AND status = 'interrupted'")
    told = front_end.do("left", connect=True)
    assert told["outcome"] == "cancelled"


def test_an_edited_history_begins_an_era_and_the_old_one_stays(front_end, stage):
    told = front_end.do("edited", say="Are we late?")
    question, *rest = told["messages"]
    edited = {**question, "content": "Is there a night train?"}
    again = front_end.do("edited", messages=[edited])
    assert again["outcome"] == "success"
    assert words(again)[0] == ("user", "Is there a night train?")
    assert words(again)[-1] == ("assistant", "Yes, at 22:40.")
    assert stage.eras("edited") == 2
    [(context,)] = stage.rows(
        "SELECT context_at('edited', max(valid_from) - 1) FROM eras WHERE context_id = 'edited'"
    )
    assert len(context["messages"]) == 1 + len(rest)
    regenerated = front_end.do("edited", messages=again["messages"][:1])
    assert words(regenerated)[-1] == ("assistant", "Yes, at 22:40.")
    assert [one["role"] for one in stage.stored("edited") if "role" in one] == ["user", "assistant"]


def test_what_the_application_says_reaches_the_model_once(stage):
    context = [{"description": "The time", "value": "06:12"}]
    messages = [{"id": "u1", "role": "user", "content": "Hm."}]
    for run in ("r1", "r2"):
        events = events_of(
            stage.post(threadId="context", runId=run, messages=messages, context=context, state={"a": 1})
        )
        consumer = Consumer()
        consumer.take_all(events)
        messages = [*consumer.messages.values(), {"id": f"u-{run}", "role": "user", "content": "And?"}]
    told = [one["content"] for one in stage.stored("context") if one["role"] == "developer"]
    assert told == ["The application says:\n- The time: 06:12"]
    assert stage.eras("context") == 1


def test_a_run_that_fails_says_why(front_end):
    told = front_end.do("broken", say="Please break.")
    failed = told["events"][-1]
    assert (failed["type"], failed["code"]) == ("RUN_ERROR", "context_refused")
    assert "That is too much." in failed["message"]
    assert told["outcome"] is None


@pytest.mark.long
def test_who_asks_while_another_is_answered_is_told_to_wait(stage):
    body = {"threadId": "busy", "messages": [{"id": "u", "role": "user", "content": "Please count."}]}
    with httpx.stream("POST", stage.url, json=body | {"runId": "r1"}, timeout=ON_SERVERS) as first:
        lines = first.iter_lines()
        while "TEXT_MESSAGE_CONTENT" not in next(lines):
            pass
        busy = stage.post(**body, runId="r2")
        assert (busy.status_code, busy.json()["type"]) == (409, "/problems/conversation-busy")
        assert any('"type":"success"' in line for line in lines)


@pytest.mark.regression("gateway 38")
def test_words_that_were_held_until_an_answer_was_over_are_told_when_they_are_stored(stage):
    """They are stored with the interruption, which is no input, and which drops the run that they asked for."""
    body = {"threadId": "held", "messages": [{"id": "u", "role": "user", "content": "Please ponder."}]}
    asked = LLMMessagesAppendFrame(
        messages=({"role": "user", "content": "Is there a night train?"},),
        run_llm=True,
        second_input="coalesce",
    )
    consumer = Consumer()
    with (
        httpx.stream("POST", stage.url, json=body | {"runId": "r1"}, timeout=ON_SERVERS) as answer,
        SyncClient(stage.settings) as client,
    ):
        lines = answer.iter_lines()
        is_asked = False
        for line in lines:
            if not line.startswith("data: "):
                continue
            event = json.loads(line.removeprefix("data: "))
            consumer.take(event)
            if event["type"] == "REASONING_MESSAGE_CONTENT" and not is_asked:
                is_asked = True
                client.publish("held", asked, wait=True, within=ON_SERVERS)
                client.publish("held", InterruptionFrame(), wait=True, within=ON_SERVERS)
    told = [(one["role"], one["content"]) for one in consumer.messages.values() if one["role"] != "reasoning"]
    assert told == [(one["role"], one["content"]) for one in stage.stored("held")]
    assert told[-1] == ("user", "Is there a night train?")


PAINT = {
    "name": "paint",
    "description": "Paints the page.",
    "parameters": {"type": "object", "properties": {"colour": {"type": "string"}}, "required": ["colour"]},
}


def tools_of(stage, context_id):
    """The names of the tools that the conversation has, the client's own with a star."""
    return [
        f"{tool['function']['name']}{'*' if tool.get('served_by') == 'client' else ''}"
        for tool in stage.context(context_id)["tools"]
    ]


def answer_of(told, content):
    [call] = [one for message in told["messages"] for one in message.get("toolCalls") or ()]
    return {"id": f"done-{call['id']}", "role": "tool", "toolCallId": call["id"], "content": content}


def calls_of(stage, context_id):
    return stage.rows(
        "SELECT function_name, status, result, worker FROM tool_calls WHERE context_id = %s "
        "ORDER BY requested_version, ordinal",
        context_id,
    )


def test_a_function_that_only_the_front_end_has_is_called_there_and_its_result_goes_on(front_end, stage):
    told = front_end.do("paint", say="Please paint.", tools=[PAINT])
    assert (told["outcome"], told["interrupts"], told["error"]) == ("success", [], None)
    assert types(told)[-4:] == ["TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END", "RUN_FINISHED"]
    _, look, call = told["messages"]
    assert look["content"] == "I paint."
    assert json.loads(call["toolCalls"][0]["function"]["arguments"]) == {"colour": "blue"}
    assert "paint*" in tools_of(stage, "paint")
    assert "keep_seat" in tools_of(stage, "paint")
    assert calls_of(stage, "paint") == [("paint", "waiting", None, None)]
    assert stage.rows("SELECT waiting_for FROM tool_calls WHERE context_id = 'paint'") == [("the client",)]

    messages = [*told["messages"], answer_of(told, '{"painted": true}')]
    done = front_end.do("paint", messages=messages, tools=[PAINT])
    assert done["outcome"] == "success"
    assert "TOOL_CALL_START" not in types(done)
    assert words(done)[-2:] == [("tool", '{"painted":true}'), ("assistant", "It is painted.")]
    assert calls_of(stage, "paint") == [("paint", "done", {"painted": True}, None)]
    front_end.do("paint", say="Thanks.", tools=[PAINT])
    assert [one["role"] for one in stage.stored("paint")] == [
        *("user", "assistant", "assistant", "tool", "assistant"),
        *("user", "assistant"),
    ]
    assert stage.eras("paint") == 1
    # Tools of the client are published once, as long as they stay the same.
    assert "LLMSetToolsFrame" not in types_of(stage, "paint")
    front_end.do("paint", say="Is there a night train?", tools=[])
    assert types_of(stage, "paint").count("LLMSetToolsFrame") == 1
    assert not any(name.endswith("*") for name in tools_of(stage, "paint"))
    assert front_end.warnings() == []


@pytest.mark.long
def test_a_function_that_comes_later_is_said_before_the_question_that_needs_it(front_end, stage):
    front_end.do("paint-later", say="Is there a night train?")
    told = front_end.do("paint-later", say="Please paint.", tools=[PAINT])
    assert types(told)[-2:] == ["TOOL_CALL_END", "RUN_FINISHED"]
    said = types_of(stage, "paint-later")
    assert said[said.index("LLMSetToolsFrame") + 1] == "LLMMessagesAppendFrame"
    assert stage.eras("paint-later") == 1


@pytest.mark.long
def test_calls_of_the_front_end_and_of_a_service_in_one_answer_go_on_together(front_end, stage):
    told = front_end.do("paint-late", say="Please paint and look.", tools=[PAINT])
    assert told["outcome"] == "success"
    assert [(name, status) for name, status, *_ in calls_of(stage, "paint-late")] == [
        ("paint", "waiting"),
        ("train_position", "done"),
    ]
    calls = {
        one["function"]["name"]: one["id"]
        for message in told["messages"]
        for one in message.get("toolCalls") or ()
    }
    answered = {message["toolCallId"] for message in told["messages"] if message["role"] == "tool"}
    assert answered == {calls["train_position"]}
    mine = {"id": "mine", "role": "tool", "toolCallId": calls["paint"], "content": "done"}
    done = front_end.do("paint-late", messages=[*told["messages"], mine], tools=[PAINT])
    assert done["messages"][-1]["content"] in ("It is painted.", "By twenty-five minutes.")
    assert stage.runs("paint-late") == ["ended", "ended"]
    assert stage.eras("paint-late") == 1


@pytest.mark.long
def test_a_front_end_that_answers_one_of_two_calls_is_told_that_the_other_is_open(front_end, stage):
    told = front_end.do("paint-twice", say="Please paint twice.", tools=[PAINT])
    first, second = [one["id"] for message in told["messages"] for one in message.get("toolCalls") or ()]
    mine = [
        {"id": f"mine-{call}", "role": "tool", "toolCallId": call, "content": "done"}
        for call in (first, second)
    ]
    half = front_end.do("paint-twice", messages=[*told["messages"], mine[0]], tools=[PAINT])
    assert half["outcome"] == "success"
    assert stage.runs("paint-twice") == ["ended"]
    done = front_end.do("paint-twice", messages=[*half["messages"], mine[1]], tools=[PAINT])
    assert done["messages"][-1]["content"] == "It is painted."
    assert stage.runs("paint-twice") == ["ended", "ended"]
    assert stage.eras("paint-twice") == 1


@pytest.mark.long
def test_a_front_end_that_comes_back_finds_its_call_and_one_that_does_not_leaves_it_to_a_person(
    front_end, stage
):
    told = front_end.do("paint-again", say="Please paint.", tools=[PAINT])
    again = front_end.do("paint-again", connect=True)
    assert again["outcome"] == "success"
    assert again["messages"] == told["messages"]
    # The client sends another message instead of the result: the model reads that the call is in progress.
    said = front_end.do("paint-again", say="Is there a night train?", tools=[PAINT])
    assert said["messages"][-1]["content"] == "Yes, at 22:40."
    assert calls_of(stage, "paint-again") == [("paint", "waiting", None, None)]
    assert stage.eras("paint-again") == 1
    late = [*said["messages"], answer_of(told, "done")]
    done = front_end.do("paint-again", messages=late, tools=[PAINT])
    assert done["outcome"] == "success"
    assert stage.runs("paint-again") == ["ended"] * 3
    assert stage.eras("paint-again") == 1
    assert calls_of(stage, "paint-again") == [("paint", "done", "done", None)]


def test_a_call_whose_place_an_edit_takes_away_is_cancelled_before_it(front_end, stage):
    told = front_end.do("paint-edited", say="Please paint.", tools=[PAINT])
    edited = {**told["messages"][0], "content": "Is there a night train?"}
    again = front_end.do("paint-edited", messages=[edited], tools=[PAINT])
    assert again["messages"][-1]["content"] == "Yes, at 22:40."
    assert calls_of(stage, "paint-edited") == [("paint", "cancelled", None, None)]
    assert stage.eras("paint-edited") == 2


@pytest.mark.long
def test_a_call_that_an_interruption_stopped_is_cancelled_by_the_next_request_unless_it_answers(stage):
    body = {"threadId": "paint-cut", "messages": [{"id": "u", "role": "user", "content": "Please paint."}]}
    consumer = Consumer()
    consumer.take_all(events_of(stage.post(**body, runId="r1", tools=[PAINT])))
    frames = stage.url.replace("/ag-ui", "/contexts/paint-cut/frames")
    httpx.post(frames, json={"type": "InterruptionFrame"}, timeout=ON_SERVERS).raise_for_status()
    known = [one for one in consumer.messages.values() if one["role"] != "reasoning"]
    said = [*known, {"id": "u2", "role": "user", "content": "Is there a night train?"}]
    told = Consumer()
    told.take_all(events_of(stage.post(threadId="paint-cut", runId="r2", messages=said, tools=[PAINT])))
    assert calls_of(stage, "paint-cut") == [("paint", "cancelled", None, None)]
    assert stage.eras("paint-cut") == 1
    assert "CANCELLED" in [one.get("content") for one in stage.stored("paint-cut")]


def test_two_front_ends_that_do_the_same_call_are_told_one_result(stage):
    body = {"threadId": "paint-raced", "messages": [{"id": "u", "role": "user", "content": "Please paint."}]}
    consumer = Consumer()
    consumer.take_all(events_of(stage.post(**body, runId="r1", tools=[PAINT])))
    known = [one for one in consumer.messages.values() if one["role"] != "reasoning"]
    [call] = [one["id"] for message in known for one in message.get("toolCalls") or ()]
    first, late = (
        run_input("paint-raced", run, [*known, tool_message(call, run)], tools=[PAINT])
        for run in ("first", "late")
    )

    async def work(dependencies):
        question = asking(dependencies, late, Raced)
        object.__setattr__(question, "other", first)
        return await question.ask()

    assert in_this_process(stage, work).run_id == "late"
    last = run_input("paint-raced", "last", [*known, tool_message(call, "last")], tools=[PAINT])
    for run in (late, first, late, last):
        consumer = Consumer()
        consumer.take_all(events_of(stage.post(**run.model_dump(by_alias=True, exclude_none=True))))
        assert consumer.messages[f"result-{call}"]["content"] == '{"deck":"first"}'
        assert consumer.outcome == {"type": "success"}
        assert list(consumer.messages.values())[-1]["content"] == "It is painted."
    assert calls_of(stage, "paint-raced") == [("paint", "done", {"deck": "first"}, None)]
    assert stage.runs("paint-raced") == ["ended", "ended"]
    assert stage.eras("paint-raced") == 1


@pytest.mark.long
def test_a_front_end_with_the_same_result_is_told_one_answer_and_who_was_first_may_want_another(stage):
    body = {"threadId": "paint-same", "messages": [{"id": "u", "role": "user", "content": "Please paint."}]}
    consumer = Consumer()
    consumer.take_all(events_of(stage.post(**body, runId="r1", tools=[PAINT])))
    known = [one for one in consumer.messages.values() if one["role"] != "reasoning"]
    [call] = [one["id"] for message in known for one in message.get("toolCalls") or ()]
    mine = tool_message(call, "upper")

    def ask(run, message):
        wanted = run_input("paint-same", run, [*known, message], tools=[PAINT])
        consumer = Consumer()
        consumer.take_all(events_of(stage.post(**wanted.model_dump(by_alias=True, exclude_none=True))))
        return list(consumer.messages.values())[-1]["content"]

    assert ask("first", mine) == "It is painted."
    assert ask("late", {**mine, "id": "theirs"}) == "It is painted."
    assert (stage.eras("paint-same"), len(stage.runs("paint-same"))) == (1, 2)
    for number, message_id in enumerate((mine["id"], f"result-{call}"), 1):
        assert ask(f"another-{number}", {**mine, "id": message_id}) == "It is painted."
        assert (stage.eras("paint-same"), len(stage.runs("paint-same"))) == (1 + number, 2 + number)


@pytest.mark.parametrize("left", ["tools", long("answer")])
def test_a_run_that_was_cut_short_behind_any_of_its_frames_says_the_rest_when_it_is_asked_for_again(
    stage, left
):
    thread = f"paint-short-{left}"
    body = {"threadId": thread, "messages": [{"id": "u", "role": "user", "content": "Please paint."}]}
    consumer = Consumer()
    consumer.take_all(events_of(stage.post(**body, runId="r1", tools=[PAINT])))
    known = [one for one in consumer.messages.values() if one["role"] != "reasoning"]
    [call] = [one["id"] for message in known for one in message.get("toolCalls") or ()]
    words = {"id": "u2", "role": "user", "content": "Is there a night train?"}
    tools = [PAINT] if left == "answer" else [PAINT, {**PAINT, "name": "erase"}]
    wanted = run_input(thread, "r2", [*known, tool_message(call, "upper"), words], tools=tools)

    async def work(dependencies):
        with pytest.raises(ProblemError, match="on the log"):
            await asking(dependencies, wanted, CutShort).ask()

    in_this_process(stage, work)
    status = "waiting" if left == "tools" else "done"
    assert [one[1] for one in calls_of(stage, thread)] == [status]
    for _ in range(2):
        events_of(stage.post(**wanted.model_dump(by_alias=True, exclude_none=True)))
        assert calls_of(stage, thread) == [("paint", "done", {"deck": "upper"}, None)]
    assert [one["content"] for one in stage.stored(thread) if one.get("role") in ("user", "tool")] == [
        "Please paint.",
        '{"deck":"upper"}',
        words["content"],
    ]
    assert stage.eras(thread) == 1


@pytest.mark.parametrize("number", first(1, [2, 1, 3]))
def test_a_gateway_that_is_killed_behind_any_frame_of_a_request_leaves_nothing_half_said(stage, number):
    thread = f"paint-killed-{number}"
    question = {"id": "u", "role": "user", "content": "Please paint."}
    consumer = Consumer()
    consumer.take_all(events_of(stage.post(threadId=thread, runId="r1", messages=[question], tools=[PAINT])))
    known = [one for one in consumer.messages.values() if one["role"] != "reasoning"]
    [call] = [one["id"] for message in known for one in message.get("toolCalls") or ()]
    words = {"id": "u2", "role": "user", "content": "Is there a night train?"}
    # The request becomes three frames: other functions, the result, and a message.
    body = {
        "threadId": thread,
        "runId": "r2",
        "messages": [*known, tool_message(call, "upper"), words],
        "tools": [PAINT, {**PAINT, "name": "erase"}],
    }
    assert killed(stage.settings, "ag_ui", thread, json.dumps(body).encode(), number)
    assert [one[1] for one in calls_of(stage, thread)] == ["waiting" if number == 1 else "done"]
    stored = stage.stored(thread)
    [place] = [number for number, one in enumerate(stored) if one.get("tool_calls")]
    assert stored[place + 1]["role"] == "tool"
    for _ in range(2):
        assert events_of(stage.post(**body))[-1]["outcome"] == {"type": "success"}
        assert calls_of(stage, thread) == [("paint", "done", {"deck": "upper"}, None)]
    assert types_of(stage, thread).count("FunctionCallResultFrame") == 1
    assert types_of(stage, thread).count("LLMSetToolsFrame") == 1
    assert stage.stored(thread)[-1]["content"] in ("Yes, at 22:40.", "It is painted.")
    assert stage.eras(thread) == 1


def test_what_cannot_be_honoured_is_refused_before_the_run(stage):
    body = {"threadId": "refused", "runId": "r", "messages": [{"id": "u", "role": "user", "content": "Hm."}]}
    own = [{"name": "paint", "description": "Paints.", "parameters": {"type": "array"}}]
    refused = stage.post(**body, tools=own)
    assert (refused.status_code, refused.json()["type"]) == (400, "/problems/bad-parameter")
    assert "tools[0].parameters" in refused.json()["detail"]
    known = [{"name": "train_position", "description": "Looks."}]
    assert events_of(stage.post(**body, tools=known))[-1]["type"] == "RUN_FINISHED"
    assert stage.post(**{**body, "runId": 7}).status_code == 400
    assert stage.post(**{**body, "runId": "r9", "later": True}).status_code == 200
    assert httpx.get(f"{stage.url}/nobody").status_code == 404
