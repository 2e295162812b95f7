"""The usage that a provider reports is published, also for an answer without a regular end."""

import asyncio

import pytest
from tests.bounds import IN_PROCESS

from frameledger.context import LLMContext
from frameledger_services.bench.inference.answers import Answer, Arguments, Call, Text, Tokens
from frameledger_services.bench.inference.model_server import serving
from frameledger_services.claims import ClaimedRun
from frameledger_services.inference.answering import answer
from frameledger_services.inference.dependencies import PreparedRequest, RunDependencies
from frameledger_services.providers.anthropic import AnthropicLLMService
from frameledger_services.providers.openai import OpenAILLMService

RUN = ClaimedRun("effect", "ctx", 7, "run-1", 1, "claim", None)
USED = Tokens(read=9000, written=8192)
HALF_A_CALL = Call(0, "call_0", "look"), Arguments(0, '{"at": ')
TWO_CALLS = Call(0, "call_0", "look"), Arguments(0, "{}"), Call(1, "call_1", "look"), Arguments(1, "{}")

both = pytest.mark.parametrize("wire", ["openai", "anthropic"])


def published(wire, reply, **options):
    """The frames of a run whose model always answers so."""
    log = []

    async def publish(context_id, frames):
        log.extend(frames)

    async def next_attempt(number):
        return number + 1

    async def life():
        async with asyncio.timeout(IN_PROCESS), serving(reply) as server:
            service = (
                OpenAILLMService(base_url=server.openai_base_url)
                if wire == "openai"
                else AnthropicLLMService(base_url=server.anthropic_base_url)
            )
            request = service.request(LLMContext([{"role": "user", "content": "Hello?"}]))

            async def prepare():
                return PreparedRequest(request)

            world = RunDependencies(
                worker="me",
                prepare=prepare,
                publish=publish,
                next_attempt=next_attempt,
                merge_secs=0.0,
                retries=0,
                **options,
            )
            try:
                await answer(RUN, service, world)
            finally:
                await service.cleanup()

    asyncio.run(life())
    return log


def usages(log):
    return [
        (frame.type, usage.input_tokens, usage.output_tokens)
        for frame in log
        if (usage := getattr(frame, "usage", None)) is not None
    ]


@pytest.mark.regression("worker 91")
@both
@pytest.mark.parametrize("words", [(), (Text("Let me see."),)], ids=["at once", "after words"])
def test_an_answer_that_ends_in_the_middle_of_a_call_has_used_what_the_provider_says(wire, words):
    log = published(wire, Answer((*words, *HALF_A_CALL), "length", tokens=USED))
    assert log[-2].code == "incomplete_call"
    assert usages(log)[-1] == ("LLMFullResponseEndFrame", 9000, 8192)


@pytest.mark.regression("worker 91")
@both
def test_an_answer_with_more_calls_than_a_run_may_make_has_used_what_the_provider_says(wire):
    log = published(wire, Answer(TWO_CALLS, "tool_calls", tokens=USED), calls_per_run=1)
    assert log[-2].code == "too_many_calls"
    assert usages(log)[-1] == ("LLMFullResponseEndFrame", 9000, 8192)


@pytest.mark.regression("worker 91")
def test_each_attempt_whose_server_breaks_off_says_what_it_used():
    log = published("openai", Answer((Text("Let me"),), "abort", tokens=USED))
    assert log[-1].code == "attempts_exhausted"
    assert usages(log) == [("LLMTextFrame", 9000, 8192)] * 3


@both
def test_a_whole_answer_of_calls_says_it_with_its_end_alone(wire):
    log = published(wire, Answer(TWO_CALLS, "tool_calls", tokens=USED))
    assert [frame.type for frame in log[1:]] == ["FunctionCallsStartedFrame", "LLMFullResponseEndFrame"]
    assert usages(log) == [("LLMFullResponseEndFrame", 9000, 8192)]
