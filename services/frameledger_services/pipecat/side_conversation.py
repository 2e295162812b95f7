"""A question outside of the pipeline, such as for a summary of its context, asked in a separate conversation.

It is on the log like every conversation, a worker answers it with its provider's key, and the original conversation is
not changed. It has no tools, so it calls no functions.

If the process dies, a worker still answers, and the answer is not used. If it dies before the last frame is published,
the side conversation stays open; nothing else happens in it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4, uuid5

from frameledger.decoding import MAX_ID_BYTES
from frameledger.errors import FrameledgerError
from frameledger_services.pipecat.captured_frame import Fields
from frameledger_services.pipecat.errors import AskingError
from frameledger_services.pipecat.run_answer import AnswerEnded, AnswerRestarted, RunAnswer

END_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class SideQuestion:
    """The question: `messages` and `settings`, with timeouts until the answer begins and between its frames."""

    about: str
    messages: Sequence[Any]
    settings: Fields
    begin_secs: float
    silent_secs: float


async def ask_side_question(client: Any, side: SideQuestion) -> str | None:
    """Returns the text of the answer; None if it has no text. Raises `AskingError` if the question is not answered, and
    what `Client.publish` and `Client.follow` raise."""
    session = uuid4()
    context_id, question = _named_after(side.about, session), uuid5(session, "question")
    opening: Fields = {
        "type": "LLMContextFrame",
        "id": str(question),
        "context": {"messages": list(side.messages), "settings": side.settings},
        "run_llm": True,
        "metadata": {"aside_of": side.about},
    }
    end = "CancelFrame"
    try:
        await client.publish(context_id, opening, within=side.begin_secs)
        text = await _answer_text(client, context_id, question, side)
        end = "EndFrame"
        return text
    finally:
        # This also stops a worker that is still answering.
        with suppress(FrameledgerError):
            over = {"type": end, "id": str(uuid5(session, "end"))}
            await client.publish(context_id, over, within=END_SECONDS)


async def _answer_text(client: Any, context_id: str, question: UUID, side: SideQuestion) -> str | None:
    run, pieces = RunAnswer(question), list[str]()
    async with aclosing(client.follow(context_id)) as frames:
        while True:
            within = side.silent_secs if run.has_begun else side.begin_secs
            try:
                async with asyncio.timeout(within):
                    stored = await anext(frames)
            except TimeoutError:
                raise AskingError(f"The question was not answered: no output within {within:g} s.") from None
            for part in run.take(stored, stored.frame):
                match part:
                    case str():
                        pieces.append(part)
                    case AnswerRestarted():
                        pieces.clear()
                    case AnswerEnded(failure=str() as why):
                        raise AskingError(why)
                    case AnswerEnded():
                        return "".join(pieces) or None


def _named_after(context_id: str, session: UUID) -> str:
    behind = f"-aside-{session.hex[:12]}"
    return context_id.encode()[: MAX_ID_BYTES - len(behind)].decode(errors="ignore") + behind
