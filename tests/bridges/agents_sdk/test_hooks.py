"""The frames that hooks publish about runs. Runs are never affected."""

import asyncio
import json
from collections import Counter
from contextlib import closing, nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
from agents import (
    Agent,
    RunConfig,
    Runner,
    RunState,
    ShellTool,
    SQLiteSession,
    Usage,
    function_tool,
    set_tracing_disabled,
)
from agents.tracing import set_trace_processors
from tests.bounds import IN_PROCESS
from tests.bridges.agents_sdk.apps import (
    CONFIG,
    TURNS,
    WAITS,
    App,
    ModelDownError,
    ScriptedModel,
    calls,
    order_status,
    says,
    shell_call,
)
from tests.support.conversation_in_memory import ConversationInMemory

from frameledger.frames import LLMContextEraseFrame
from frameledger_services.agents_sdk import FrameledgerRunHooks
from frameledger_services.agents_sdk.publishing import GAP, Publishing
from frameledger_services.agents_sdk.values import finish_reason_of
from frameledger_services.client import FramesRefusedError, FramesUnacknowledgedError

START, TEXT, END = "LLMFullResponseStartFrame", "LLMTextFrame", "LLMFullResponseEndFrame"
ANSWER = (START, TEXT, END)
ANSWERS_WITH_A_CALL = (START, END)
CALL = ("FunctionCallInProgressFrame", "FunctionCallResultFrame")
TOLD = {
    "plain": ANSWER,
    "call": (*ANSWER, *CALL, *ANSWER),
    "failing call": (*ANSWERS_WITH_A_CALL, *CALL, *ANSWER),
    "handoff": (*ANSWERS_WITH_A_CALL, "openai-agents/HandoffFrame", *ANSWERS_WITH_A_CALL, *CALL, *ANSWER),
    "tripwire": (START, "ErrorFrame"),
    "cancelled": (START, "InterruptionFrame"),
    "cancelled in a call": (
        *(*ANSWERS_WITH_A_CALL, "FunctionCallInProgressFrame"),
        *("InterruptionFrame", "FunctionCallCancelFrame"),
    ),
    "model down": (START, "ErrorFrame"),
    "broken off by a call": (*ANSWERS_WITH_A_CALL, *CALL, "ErrorFrame"),
}


class Recorded(ConversationInMemory):
    """Returns the frames of hooks without agent events and mirror frames."""

    def told(self):
        left_out = ("openai-agents/Agent", "LLMMirrorFrame")
        return [one for one in self.frames if not one.type.startswith(left_out)]

    def types(self):
        return tuple(one.type for one in self.told())


def wire(frame):
    return json.loads(frame.model_dump_json())


def answered(*steps, **agent):
    return Agent(name="a", model=ScriptedModel(steps), **agent)


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("kind", TURNS)
def test_a_run_is_told_from_its_first_answer_to_its_end(kind, streamed):
    async def scenario():
        ledger = Recorded()
        hooks = FrameledgerRunHooks("s", ledger)
        with_session = SQLiteSession("s")
        await App(with_session, hooks).turn(
            kind, "secret" if kind == "tripwire" else "Where is it?", streamed
        )
        with_session.close()
        assert await hooks.flush(IN_PROCESS)
        assert (hooks.unpublished, hooks.lost) == (0, 0)
        return ledger

    ledger = asyncio.run(scenario())
    # A guardrail that runs first prevents requests to the model.
    expected = ("ErrorFrame",) if (kind, streamed) == ("tripwire", True) else TOLD[kind]
    assert ledger.types() == expected
    assert {ledger.became[one.id].outcome for one in ledger.told()} <= {"applied", "unknown"}
    state = ledger.folding.state
    assert state.speech.response is None
    assert not state.calls.open
    # The messages are those of the session; hooks write none.
    assert ledger.folding.conversation().messages == ()
    for one in ledger.told():
        if one.type == START:
            assert (one.provider, one.model) == ("test", "scripted-1")
        if one.type == "FunctionCallResultFrame":
            assert one.settled_as == ("done" if kind in ("call", "handoff") else "failed")
        if one.type == "ErrorFrame":
            assert one.code in ("InputGuardrailTripwireTriggered", "ModelDownError", "UserError")
            assert "secret" not in one.message
    runs = {one.metadata["openai-agents"]["run"] for one in ledger.told() if one.type == START}
    assert len(runs) <= 1


def test_an_answer_says_what_it_used_and_why_it_ended():
    async def scenario():
        ledger = Recorded()
        hooks = FrameledgerRunHooks("s", ledger)
        with closing(SQLiteSession("s")) as session:
            await App(session, hooks).turn("call", "Where is it?")
        await hooks.flush(IN_PROCESS)
        return ledger.told()

    frames = asyncio.run(scenario())
    ends = [one for one in frames if one.type == END]
    assert [one.finish_reason for one in ends] == ["tool_calls", "stop"]
    used = [(one.usage.input_tokens, one.usage.output_tokens, one.usage.cache_read_tokens) for one in ends]
    # The question; then the question, the answer, the call and its result.
    assert used == [(1, 2, 0), (4, 1, 3)]
    [started, settled] = [one for one in frames if one.type in CALL]
    assert wire(started)["arguments"] == '{"order": "7"}'
    assert wire(settled)["result"] == {"order": "7", "place": "Zürich", "days": 1.0}


@pytest.mark.regression("bridge 50")
@pytest.mark.parametrize(
    ("kinds", "reason"),
    [
        (["message"], "stop"),
        (["reasoning", "function_call"], "tool_calls"),
        (["shell_call"], "tool_calls"),
        (["custom_tool_call", "message"], "tool_calls"),
        (["apply_patch_call"], "tool_calls"),
        (["computer_call"], "tool_calls"),
        (["shell_call", "shell_call_output", "message"], "stop"),
        (["web_search_call", "message"], "stop"),
    ],
    ids=lambda one: one if isinstance(one, str) else " ".join(one),
)
def test_an_answer_that_calls_a_tool_of_any_kind_says_so(kinds, reason):
    items = [{"type": kind, "status": "completed"} for kind in kinds]
    assert finish_reason_of(SimpleNamespace(output=items)) == reason


def test_what_nobody_ended_is_broken_off_when_the_next_answer_begins():
    async def scenario():
        ledger = Recorded()
        hooks = FrameledgerRunHooks("s", ledger, provider="mine", model="other")
        agent = answered(WAITS, [says("Yes.")])
        running = asyncio.ensure_future(Runner.run(agent, "Hi", hooks=hooks, run_config=CONFIG))
        await agent.model.waits.wait()
        running.cancel()
        await asyncio.wait([running])
        await Runner.run(agent, "Again", hooks=hooks, run_config=CONFIG)
        assert await hooks.flush(IN_PROCESS)
        return ledger

    ledger = asyncio.run(scenario())
    assert ledger.types() == (START, "InterruptionFrame", *ANSWER)
    assert [one.mirror for one in ledger.told() if one.type == "InterruptionFrame"] == ["openai-agents"]
    assert [(one.provider, one.model) for one in ledger.told() if one.type == START] == [
        ("mine", "other")
    ] * 2


class Ends(FrameledgerRunHooks):
    """Records the agents whose answers have ended."""

    def __init__(self, *given):
        super().__init__(*given)
        self.ended = {name: asyncio.Event() for name in ("a", "one", "two")}

    async def on_llm_end(self, context, agent, response):
        await super().on_llm_end(context, agent, response)
        self.ended[agent.name].set()


@pytest.mark.parametrize("first", ["one", "two"])
def test_agents_that_are_tools_and_answer_at_once_are_counted_each(first):
    async def scenario():
        ledger = Recorded()
        hooks = Ends("s", ledger)
        both = asyncio.Barrier(2)

        class Together(ScriptedModel):
            async def _step(self, given):
                await both.wait()
                [[said]] = self.steps
                if said.content[0].text != first:
                    await hooks.ended[first].wait()
                return await super()._step(given)

        helpers = [Agent(name=name, model=Together([[says(name)]])) for name in ("one", "two")]
        asks = [calls("c1", "one", '{"input":"x"}'), calls("c2", "two", '{"input":"x"}')]
        tools = [one.as_tool(one.name, "Helps.", hooks=hooks) for one in helpers]
        agent = answered(asks, [says("Both.")], tools=tools)
        result = await Runner.run(agent, "Hi", hooks=hooks, run_config=CONFIG)
        assert result.final_output == "Both."
        assert await hooks.flush(IN_PROCESS)
        return ledger

    ledger = asyncio.run(scenario())
    told = Counter(ledger.types())
    assert (told[START], told[END], told[TEXT], told["FunctionCallResultFrame"]) == (4, 4, 3, 2)
    assert told["InterruptionFrame"] == 0
    answers = [one for one in ledger.told() if one.type in (START, END)]
    assert [one.type for one in answers] == [START, END] * 4
    about = [one.metadata["openai-agents"]["agent"] for one in answers[::2]]
    assert sorted(about) == ["a", "a", "one", "two"]
    texts = [one.text for one in ledger.told() if one.type == TEXT]
    assert texts == [*about[1:3], "Both."]
    assert sum(one.usage.input_tokens for one in ledger.told() if one.type == END) == 1 + 1 + 1 + 5
    assert {ledger.became[one.id].outcome for one in ledger.told()} == {"applied"}


def test_an_answer_that_waited_for_one_that_failed_is_told_before_the_next():
    async def scenario():
        ledger = Recorded()
        hooks = Ends("s", ledger)

        class Fails(ScriptedModel):
            async def _step(self, given):
                await hooks.ended["two"].wait()
                raise ValueError

        helpers = [
            Agent(name="one", model=Fails([])),
            Agent(name="two", model=ScriptedModel([[says("Yes.")]])),
        ]
        asks = [calls("c1", "one", '{"input":"x"}'), calls("c2", "two", '{"input":"x"}')]
        tools = [one.as_tool(one.name, "Helps.", hooks=hooks) for one in helpers]
        agent = answered(asks, [says("One of them.")], tools=tools)
        await Runner.run(agent, "Hi", hooks=hooks, run_config=CONFIG)
        assert await hooks.flush(IN_PROCESS)
        return [one for one in ledger.told() if one.type in ANSWER]

    told = asyncio.run(scenario())
    assert tuple(one.type for one in told) == (START, END, START, *ANSWER, *ANSWER)
    assert [one.text for one in told if one.type == TEXT] == ["Yes.", "One of them."]
    assert [one.metadata["openai-agents"]["agent"] for one in told if one.type == START] == [
        "a",
        "one",
        "two",
        "a",
    ]


class Together(ScriptedModel):
    """Answers once all agents wait for an answer."""

    all_wait: asyncio.Barrier

    async def _step(self, given):
        if len(self.steps) > 1:
            await self.all_wait.wait()
        return await super()._step(given)


async def at_once(each, last):
    """Returns the results of three runs at the same time, in a scope for each or in one for all, and what is told of
    them. They call a tool each, and answer; `last` are their answers."""
    ledger = Recorded()
    hooks = FrameledgerRunHooks("s", ledger)
    all_wait = asyncio.Barrier(3)

    async def run(number):
        model = Together([[calls(f"c{number}", "order_status", '{"order": "7"}')], last[number]])
        model.all_wait = all_wait
        agent = Agent(name=f"a{number}", model=model, tools=[order_status])
        async with hooks if each else nullcontext():
            return await Runner.run(agent, "Hi", hooks=hooks, run_config=CONFIG)

    async with nullcontext() if each else hooks:
        results = await asyncio.gather(*map(run, range(3)), return_exceptions=True)
    assert await hooks.flush(IN_PROCESS)
    assert {ledger.became[one.id].outcome for one in ledger.told()} == {"applied"}
    return results, ledger


@pytest.mark.regression("bridge 31")
@pytest.mark.parametrize("each", [True, False], ids=["a scope each", "one scope"])
def test_runs_at_the_same_time_are_counted_each(each):
    results, ledger = asyncio.run(at_once(each, [[says(f"Done {number}")] for number in range(3)]))
    assert [one.final_output for one in results] == ["Done 0", "Done 1", "Done 2"]
    told = Counter(ledger.types())
    assert told == {START: 6, END: 6, TEXT: 3, CALL[0]: 3, CALL[1]: 3}
    assert [one.type for one in ledger.told() if one.type in (START, END)] == [START, END] * 6
    assert {one.settled_as for one in ledger.told() if one.type == CALL[1]} == {"done"}
    assert len({one.metadata["openai-agents"]["run"] for one in ledger.told() if one.type == START}) == 3


@pytest.mark.regression("bridge 31")
@pytest.mark.parametrize("each", [True, False], ids=["a scope each", "one scope"])
def test_of_runs_at_the_same_time_one_that_fails_ends_with_its_scope(each):
    last = [ModelDownError(), [says("Done 1")], [says("Done 2")]]
    results, ledger = asyncio.run(at_once(each, last))
    assert isinstance(results[0], ModelDownError)
    failed = [one.metadata["openai-agents"]["agent"] for one in ledger.told() if one.type == START]
    assert Counter(failed) == {"a0": 2, "a1": 2, "a2": 2}
    told = Counter(ledger.types())
    assert (told[END], told[TEXT]) == (5, 2)
    # Who knows that it failed: the scope of it alone.
    assert (told["ErrorFrame"], told["InterruptionFrame"]) == ((1, 0) if each else (0, 1))
    assert ledger.folding.state.speech.response is None


@pytest.mark.regression("bridge 31")
def test_an_answer_of_a_tool_that_failed_while_another_one_was_open_is_reported_by_its_tool_alone():
    async def scenario():
        ledger = Recorded()
        hooks = FrameledgerRunHooks("s", ledger)
        failed = asyncio.Event()

        class Fails(ScriptedModel):
            async def _step(self, given):
                failed.set()
                raise ValueError

        class Waits(ScriptedModel):
            async def _step(self, given):
                await failed.wait()
                return await super()._step(given)

        helpers = [Agent(name="one", model=Waits([[says("Yes.")]])), Agent(name="two", model=Fails([]))]
        asks = [calls("c1", "one", '{"input":"x"}'), calls("c2", "two", '{"input":"x"}')]
        tools = [one.as_tool(one.name, "Helps.", hooks=hooks) for one in helpers]
        agent = answered(asks, [says("One of them.")], tools=tools)
        async with hooks:
            await Runner.run(agent, "Hi", hooks=hooks, run_config=CONFIG)
        assert await hooks.flush(IN_PROCESS)
        return ledger.told()

    told = asyncio.run(scenario())
    assert [one.type for one in told if one.type not in CALL] == [START, END, *ANSWER, *ANSWER]
    assert sorted(one.settled_as for one in told if one.type == CALL[1]) == ["done", "failed"]


@function_tool(needs_approval=True)
def refund(order: str) -> str:
    """Refunds an order, if a person approves."""
    return f"{order} is refunded."


@pytest.mark.regression("bridge 44")
@pytest.mark.parametrize("elsewhere", [False, True], ids=["same process", "another process"])
@pytest.mark.parametrize("scopes", [0, 1, 2], ids=["no scope", "one scope", "a scope each"])
def test_an_agent_that_is_a_tool_and_waited_for_an_approval_ends_with_its_result(scopes, elsewhere):
    # The SDK keeps what waits by the ids of calls, beyond a run.
    asks, refunds = (f"{name}-{scopes}-{elsewhere}" for name in ("c1", "c2"))

    async def scenario():
        ledger = Recorded()
        helper_steps = [[calls(refunds, "refund", '{"order": "7"}')], [says("I refunded it.")]]
        hooks = FrameledgerRunHooks("s", ledger)
        helper = Agent(name="helper", model=ScriptedModel(helper_steps), tools=[refund])
        tool = helper.as_tool("helper", "Helps.", hooks=hooks)
        agent = answered([calls(asks, "helper", '{"input": "x"}')], [says("Done.")], tools=[tool])
        async with hooks if scopes == 1 else nullcontext():
            async with hooks if scopes == 2 else nullcontext():
                paused = await Runner.run(agent, "Refund it", hooks=hooks, run_config=CONFIG)
            state = paused.to_state()
            later = hooks
            if elsewhere:
                assert await hooks.flush(IN_PROCESS)
                state, later = (
                    await RunState.from_json(agent, state.to_json()),
                    FrameledgerRunHooks("s", ledger),
                )
            for one in state.get_interruptions():
                state.approve(one)
            async with later if scopes == 2 else nullcontext():
                result = await Runner.run(agent, state, hooks=later, run_config=CONFIG)
        assert result.final_output == "Done."
        assert await later.flush(IN_PROCESS)
        assert await hooks.flush(IN_PROCESS)
        return ledger

    ledger = asyncio.run(scenario())
    settled = [
        (one.tool_call_id, wire(one)["result"])
        for one in ledger.told()
        if one.type == CALL[1] and ledger.became[one.id].outcome == "applied"
    ]
    assert settled == [(refunds, "7 is refunded."), (asks, "I refunded it.")]
    assert not ledger.folding.state.calls.open


def deep(levels):
    value: Any = "the bottom"
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    "result",
    [deep(300), deep(100), {"n": 10**400}, deep(5000), 10**5000],
    ids=["300 levels", "one level too many", "400 digits", "5000 levels", "5000 digits"],
)
def test_a_call_is_told_whatever_its_tool_returns(result):
    @function_tool
    def strange() -> Any:
        return result

    async def scenario():
        ledger = Recorded()
        hooks = FrameledgerRunHooks("s", ledger)
        context, used = SimpleNamespace(usage=Usage(), tool_call_id="c1", tool_arguments="{}"), strange
        await hooks.on_tool_start(context, None, used)
        await hooks.on_tool_end(context, None, used, result)
        assert await hooks.flush(IN_PROCESS)
        assert hooks.lost == 0
        return ledger

    ledger = asyncio.run(scenario())
    assert ledger.types() == CALL
    assert isinstance(wire(ledger.told()[1])["result"], str)
    assert not ledger.folding.state.calls.open


def test_a_frame_that_nobody_can_read_holds_up_no_other():
    async def scenario():
        ledger = Recorded()
        publishing = Publishing("s", ledger)
        kind = "openai-agents/AgentStartFrame"
        publishing.put([{"type": kind, "n": n} for n in (1, deep(300), 10**400, 4)])
        assert await publishing.flush(IN_PROCESS)
        assert (publishing.unpublished, publishing.lost) == (0, 2)
        return [one.n for one in ledger.frames]

    assert asyncio.run(scenario()) == [1, 4]


def test_a_tool_whose_failure_the_application_words_has_failed_where_it_is_traced():
    @function_tool(failure_error_function=lambda context, error: "Try something else.")
    def broken() -> str:
        raise ValueError

    async def scenario():
        ledger = Recorded()
        hooks = FrameledgerRunHooks("s", ledger)
        agent = answered([calls("c1", "broken")], [says("Well.")], tools=[broken])
        await Runner.run(agent, "Hi", hooks=hooks)
        await hooks.flush(IN_PROCESS)
        return ledger.told()

    # Traced without an exporter.
    set_trace_processors([])
    set_tracing_disabled(False)
    [settled] = [one for one in asyncio.run(scenario()) if one.type == "FunctionCallResultFrame"]
    assert (wire(settled)["result"], settled.settled_as) == ("Try something else.", "failed")


@pytest.mark.regression("bridge 32")
@pytest.mark.parametrize("traced", [False, True], ids=["untraced", "traced"])
@pytest.mark.parametrize(
    ("own", "result", "settled_as"),
    [
        ({}, "Tool 'slow' timed out after 0.001 seconds.", "failed"),
        ({"timeout_error_function": lambda context, error: "Later."}, "Later.", "done"),
    ],
    ids=["of the SDK", "of the application"],
)
def test_a_tool_that_timed_out_has_failed_if_the_sdk_worded_it(own, result, settled_as, traced):
    @function_tool(timeout=0.001, **own)
    async def slow() -> str:
        await asyncio.Event().wait()
        return ""

    @function_tool(timeout=IN_PROCESS)
    async def quick() -> str:
        return "Here."

    async def scenario():
        ledger = Recorded()
        hooks = FrameledgerRunHooks("s", ledger)
        agent = answered([calls("c1", "slow"), calls("c2", "quick")], [says("Well.")], tools=[slow, quick])
        await Runner.run(agent, "Hi", hooks=hooks, run_config=RunConfig(tracing_disabled=not traced))
        await hooks.flush(IN_PROCESS)
        return ledger.told()

    set_trace_processors([])
    set_tracing_disabled(False)
    settled = [one for one in asyncio.run(scenario()) if one.type == CALL[1]]
    assert sorted((one.tool_call_id, wire(one)["result"], one.settled_as) for one in settled) == [
        ("c1", result, settled_as),
        ("c2", "Here.", "done"),
    ]


class Away:
    """A client whose servers are unreachable, or that is closed, in one of several ways."""

    def __init__(self, way):
        self.way = way
        self.asked = 0

    async def publish(self, context_id, *frames, within):
        self.asked += 1
        if self.way == "hangs":
            await asyncio.Event().wait()
        if isinstance(self.way, Exception):
            raise self.way
        raise self.way("away", [one.frame for one in frames])


@pytest.mark.parametrize(
    "way",
    ["hangs", FramesUnacknowledgedError, FramesRefusedError, RuntimeError("closed"), OSError("no route")],
    ids=lambda way: way if isinstance(way, str) else getattr(way, "__name__", type(way).__name__),
)
def test_a_run_ends_as_it_would_have_whatever_becomes_of_what_is_told(way):
    async def scenario():
        client = Away(way)
        hooks = FrameledgerRunHooks("s", client)
        session = SQLiteSession("s")
        async with asyncio.timeout(IN_PROCESS):
            for kind in TURNS:
                await App(session, hooks).turn(kind, "secret" if kind == "tripwire" else "Hi")
        whole = await hooks.flush(0)
        assert client.asked
        assert whole is False or hooks.lost > 0
        session.close()

    asyncio.run(scenario())


def test_what_hooks_are_given_never_ends_a_run():
    async def scenario():
        hooks = FrameledgerRunHooks("s", Recorded())
        for hook in (hooks.on_agent_start, hooks.on_agent_end):
            await hook(None, *[None] * (hook.__code__.co_argcount - 2))
        await hooks.on_llm_start(None, None, None, None)
        await hooks.on_llm_end(None, None, None)
        await hooks.on_tool_start(None, None, None)
        await hooks.on_tool_end(None, None, None, None)
        await hooks.on_handoff(None, None, None)
        assert hooks.lost == 7

    asyncio.run(scenario())


@pytest.mark.regression("bridge 43")
def test_hooks_that_outlive_their_conversation_write_nothing_into_the_next_one():
    async def scenario():
        ledger = Recorded()
        hooks = FrameledgerRunHooks("s", ledger)

        @function_tool
        async def erased_meanwhile() -> str:
            """Work during which the conversation is erased."""
            assert await hooks.flush(IN_PROCESS)
            ledger.folding.step(LLMContextEraseFrame(why="request 17"))
            return "Done."

        agent = answered(
            [calls("1", "erased_meanwhile")],
            [calls("2", "order_status", '{"order": "A-17"}')],
            [says("It is there.")],
            tools=[erased_meanwhile, order_status],
        )
        await Runner.run(agent, "Where is it?", hooks=hooks, run_config=CONFIG)
        assert await hooks.flush(IN_PROCESS)
        return ledger

    ledger = asyncio.run(scenario())
    state = ledger.folding.state
    assert (state.terms.mirror, state.runs.open) == ("openai-agents", None)
    assert ledger.folding.conversation().messages == ()


def test_memory_is_bounded_and_a_frame_says_what_is_missing():
    async def scenario():
        ledger = Recorded(gate=asyncio.Event())
        publishing = Publishing("s", ledger, max_frames=5, max_bytes=10_000)
        for number in range(50):
            publishing.put([{"type": "openai-agents/AgentStartFrame", "number": number}])
        assert (publishing.unpublished, publishing.lost) == (5, 45)
        ledger.gate.set()
        assert await publishing.flush(IN_PROCESS)
        publishing.put([{"type": "openai-agents/AgentStartFrame", "big": "x" * 20_000}])
        publishing.put([{"type": "openai-agents/AgentStartFrame", "number": 50}])
        assert await publishing.flush(IN_PROCESS)
        return ledger.frames

    frames = asyncio.run(scenario())
    assert [getattr(one, "number", None) for one in frames] == [0, 1, 2, 3, 4, None, 50]
    assert wire(frames[5])["frames"] == 46
    assert frames[5].type == GAP


def test_frames_that_were_published_and_not_acknowledged_count_once():
    async def scenario():
        ledger = Recorded(faults=["unheard", "lost", "unheard"])
        publishing = Publishing("s", ledger)
        publishing.put([{"type": "openai-agents/AgentStartFrame", "number": number} for number in range(3)])
        assert await publishing.flush(IN_PROCESS)
        return [one.number for one in ledger.frames]

    assert asyncio.run(scenario()) == [0, 1, 2]


@pytest.mark.regression("bridge 53")
@pytest.mark.parametrize("nested", [False, True], ids=["agent", "tool"])
def test_a_shell_call_has_the_id_of_its_item_also_in_an_agent_that_is_a_tool(nested):
    async def scenario():
        ledger = Recorded()
        hooks = FrameledgerRunHooks("s", ledger)
        runs_shell = answered(
            [shell_call("sh1", "ls"), shell_call("sh2", "pwd")],
            [says("Seen.")],
            tools=[ShellTool(executor=lambda request: "/tmp")],
        )
        agent = runs_shell
        if nested:
            helper = runs_shell.as_tool("helper", "Helps.", hooks=hooks)
            agent = answered([calls("c1", "helper", '{"input":"x"}')], [says("Done.")], tools=[helper])
        await Runner.run(agent, "Hi", hooks=hooks, run_config=CONFIG)
        assert await hooks.flush(IN_PROCESS)
        return ledger

    ledger = asyncio.run(scenario())
    told = [(one.type, one.tool_call_id) for one in ledger.told() if one.type in CALL]
    own = [(kind, id_) for id_ in ("sh1", "sh2") for kind in CALL]
    assert told == ([(CALL[0], "c1"), *own, (CALL[1], "c1")] if nested else own)
    begun = [one for one in ledger.told() if one.type == CALL[0] and one.tool_call_id == "sh1"]
    assert wire(begun[0])["arguments"]["commands"] == ["ls"]
    assert {ledger.became[one.id].outcome for one in ledger.told()} == {"applied"}
