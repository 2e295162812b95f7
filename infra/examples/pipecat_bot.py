"""A Pipecat bot in a terminal, with a model that needs no key: run `python pipecat_bot.py desk-9`.

Its conversation is on the log. Kill it with `kill -9` during an answer and start it again: it continues with the stored
conversation, including the part of the answer that was said.
"""

import asyncio
import sys

from pipecat.frames.frames import (
    EndFrame,
    LLMContextFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMMessagesAppendFrame,
    LLMTextFrame,
)
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineWorker
from pipecat.processors.aggregators.llm_response_universal import LLMContextAggregatorPair
from pipecat.services.llm_service import LLMService
from pipecat.workers.runner import WorkerRunner

from frameledger_services.pipecat import FrameledgerObserver


class Echo(LLMService):
    """Repeats its input, and counts the questions. Use one of Pipecat's services instead."""

    async def process_frame(self, frame, direction):
        await super().process_frame(frame, direction)
        if not isinstance(frame, LLMContextFrame):
            return await self.push_frame(frame, direction)
        asked = [one["content"] for one in frame.context.messages if one["role"] == "user"]
        await self.push_frame(LLMFullResponseStartFrame())
        for word in f"Question {len(asked)}: {asked[-1]}".split():
            await self.push_frame(LLMTextFrame(f"{word} "))
            print(word, end=" ", flush=True)
            await asyncio.sleep(0.05)  # slow enough to kill it during an answer
        print()
        return await self.push_frame(LLMFullResponseEndFrame())


async def main(context_id):
    ledger = FrameledgerObserver(context_id)
    context = await ledger.restore()  # instead of LLMContext()
    for one in context.messages:
        print(f"{one['role']}: {one['content']}")
    user, assistant = LLMContextAggregatorPair(context)
    worker = PipelineWorker(Pipeline([user, Echo(), assistant]), observers=[ledger])
    runner = WorkerRunner()
    await runner.add_workers(worker)
    running = asyncio.create_task(runner.run())
    while line := await asyncio.to_thread(sys.stdin.readline):
        said = {"role": "user", "content": line.strip()}
        await worker.queue_frame(LLMMessagesAppendFrame(messages=[said], run_llm=True))
    await worker.queue_frame(EndFrame())
    await running


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
