"""A question outside of the pipeline, as for a summary of its context: asked as a conversation of its own.

So it is on the log as everything is, our workers answer it with the keys that they have, and the conversation that it
is about knows nothing of it. No tools go along: nothing that is asked so calls a function.

If the process dies, the worker answers all the same, and nobody hears it. If it dies before the last frame here, the
conversation is not said to be over; nothing more comes of it either.
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
from frameledger_services.pipecat.run_answer import Anew, Ended, RunAnswer

END_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class SideQuestion:
    """What is asked: `messages` with these `settings`, and how long an answer may take to begin, and to go on."""

    about: str
    messages: Sequence[Any]
    settings: Fields
    begin_secs: float
    silent_secs: float


async def answered(client: Any, aside: SideQuestion) -> str | None:
    """Returns the text of the answer; None if it has none. Raises `AskingError` if there is no answer, and what
    `Client.publish` and `Client.follow` raise."""
    session = uuid4()
    context_id, question = _named_after(aside.about, session), uuid5(session, "question")
    opening: Fields = {
        "type": "LLMContextFrame",
        "id": str(question),
        "context": {"messages": list(aside.messages), "settings": aside.settings},
        "run_llm": True,
        "metadata": {"aside_of": aside.about},
    }
    end = "CancelFrame"
    try:
        await client.publish(context_id, opening, within=aside.begin_secs)
        text = await _heard(client, context_id, question, aside)
        end = "EndFrame"
        return text
    finally:
        # Whoever still answers is told to stop.
        with suppress(FrameledgerError):
            over = {"type": end, "id": str(uuid5(session, "end"))}
            await client.publish(context_id, over, within=END_SECONDS)


async def _heard(client: Any, context_id: str, question: UUID, aside: SideQuestion) -> str | None:
    run, said = RunAnswer(question), list[str]()
    async with aclosing(client.follow(context_id)) as frames:
        while True:
            within = aside.silent_secs if run.has_begun else aside.begin_secs
            try:
                async with asyncio.timeout(within):
                    stored = await anext(frames)
            except TimeoutError:
                raise AskingError(f"Nothing came of the question within {within:g} s.") from None
            for one in run.take(stored, stored.frame):
                match one:
                    case str():
                        said.append(one)
                    case Anew():
                        said.clear()
                    case Ended(failure=str() as why):
                        raise AskingError(why)
                    case Ended():
                        return "".join(said) or None


def _named_after(context_id: str, session: UUID) -> str:
    behind = f"-aside-{session.hex[:12]}"
    return context_id.encode()[: MAX_ID_BYTES - len(behind)].decode(errors="ignore") + behind
