"""An application of the OpenAI Agents SDK in a terminal, with a model that needs no key.

Run `python agents_app.py ticket-9`. Its history, runs and calls are on the log. Kill it (`kill -9`) during an answer
and start it again: it continues with the stored history.
"""

import asyncio
import sys

from agents import Agent, ModelResponse, Runner, Usage, function_tool, set_tracing_disabled
from agents.models.interface import Model
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

from frameledger_services.agents_sdk import FrameledgerRunHooks, FrameledgerSession
from frameledger_services.client import Client


class Clerk(Model):
    """A model that looks up every order. Use a model of your own instead."""

    model = "examples/clerk-1"

    async def get_response(self, system_instructions, input, *rest, **more):
        asked = [one["content"] for one in input if one.get("role") == "user"]
        if input[-1].get("type") == "function_call_output":
            output = self.says(f"Question {len(asked)}: {input[-1]['output']}")
        else:
            order = asked[-1].split()[-1].strip("?.!")
            name, call_id = "order_status", f"call_{len(input)}"
            output = ResponseFunctionToolCall(
                type="function_call", name=name, call_id=call_id, arguments=f'{{"order": "{order}"}}'
            )
        await asyncio.sleep(0.2)
        used = Usage(requests=1, input_tokens=len(input), output_tokens=1, total_tokens=len(input) + 1)
        return ModelResponse(output=[output], usage=used, response_id=None)

    def says(self, text):
        content = [ResponseOutputText(type="output_text", text=text, annotations=[])]
        return ResponseOutputMessage(
            id="msg", type="message", role="assistant", status="completed", content=content
        )

    async def stream_response(self, *given, **more):
        raise NotImplementedError
        yield


@function_tool
def order_status(order: str) -> str:
    """Where an order is."""
    return f"order {order} is on its way."


async def main(session_id):
    set_tracing_disabled(True)  # traces would be sent to OpenAI
    agent = Agent(name="clerk", model=Clerk(), tools=[order_status])
    async with Client() as client:
        session = FrameledgerSession(session_id, client)  # instead of SQLiteSession(session_id)
        hooks = FrameledgerRunHooks(session_id, client)
        for item in await session.get_items():
            print(item.get("role") or item["type"], item.get("content") or item.get("output") or item["name"])
        while line := await asyncio.to_thread(sys.stdin.readline):
            if not line.strip():
                continue
            async with hooks:
                result = await Runner.run(agent, line.strip(), session=session, hooks=hooks)
            print(result.final_output, flush=True)
        await hooks.flush()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
