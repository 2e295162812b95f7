"""`frameledger chat`: chat in a terminal with the model that answers a conversation."""

from __future__ import annotations

import asyncio
import secrets
import signal
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack, aclosing
from enum import Enum
from typing import Annotated, Any, cast

import typer

from frameledger.frames import AnyFrame, LLMSetToolsFrame, LLMUpdateSettingsFrame
from frameledger.frames.base import SecondInput
from frameledger_services.cli.chat import render
from frameledger_services.cli.chat.session import ChatSession, Event, Line
from frameledger_services.cli.chat.work import StoredWork, Work
from frameledger_services.cli.terminal import backend, gateway_option, options, output, stdin, suggestion
from frameledger_services.client import Conversations
from frameledger_services.settings import Settings
from frameledger_services.store.connections import Connections
from frameledger_services.telemetry.provider import recording

SOURCE = "frameledger/chat"

commands = typer.Typer()


class Mode(Enum):
    """How an input during an answer is handled (R7)."""

    enqueue = "enqueue"
    interrupt = "interrupt"
    reject = "reject"
    coalesce = "coalesce"


@commands.command()
def chat(
    context: Annotated[
        str | None,
        typer.Argument(
            metavar="CONTEXT",
            callback=options.context_id,
            help="Id of the conversation. Default: a new one.",
            show_default=False,
        ),
    ] = None,
    system: Annotated[str | None, typer.Option(metavar="TEXT", help="System prompt.")] = None,
    model: Annotated[
        str | None, typer.Option(metavar="MODEL", help="Model for the following answers.")
    ] = None,
    tools: Annotated[
        bool, typer.Option(help="Give a new conversation the functions that live workers offer.")
    ] = True,
    second_input: Annotated[
        Mode | None,
        typer.Option(
            "--second-input",
            help="How a line typed during an answer is handled. Default: it is sent after the answer.",
            show_default=False,
        ),
    ] = None,
    url: gateway_option.Url = None,
) -> None:
    """Chat with the model that answers a conversation.

    Each line that you type is a turn of the user. The answer is printed as it arrives; function calls are shown in dim
    lines. Ctrl-C during an answer interrupts it, and the context keeps what was printed. Ctrl-C or Ctrl-D at the prompt
    ends the chat; the conversation stays open. While no server answers, a second Ctrl-C ends it at once. With
    --second-input, a line typed during an answer is published at once and interrupts the answer, is rejected, or is
    answered next, alone or with others. Standard input may be a file or a pipe. With --url, everything goes over HTTP.

    Example: `frameledger chat --system "You are a lighthouse keeper."`
    """
    with backend.exit_on_error():
        settings = Settings.from_env()
        context_id = context or f"chat-{secrets.token_hex(4)}"
        gateway = gateway_option.address(settings, url)
        with recording("cli"):
            asyncio.run(_chat(settings, gateway, context_id, system, model, tools, second_input))


async def _chat(
    settings: Settings,
    url: str | None,
    context_id: str,
    system: str | None,
    model: str | None,
    tools: bool,
    second_input: Mode | None,
) -> None:
    page = render.Screen(output.console(), context_id)
    events: asyncio.Queue[Event] = asyncio.Queue()
    async with AsyncExitStack() as stack:
        client, work = await _reached(stack, settings, url)
        before = await client.newest_version(context_id)
        offered = await work.tools_on_offer() if tools and not before else {}
        opening = _opening(system, model, list(offered.values()))
        if opening:
            await client.publish(context_id, *opening, wait=True)
        page.say(
            f"{context_id}{'' if before else ', a new conversation'}. Ctrl-C interrupts an answer, Ctrl-D ends the "
            "chat."
        )
        if offered:
            page.say(f"Available functions: {', '.join(offered)}.")

        async def watch() -> None:
            after = await client.newest_version(context_id)
            async with aclosing(client.follow(context_id, after)) as frames:
                async for frame in frames:
                    events.put_nowait(frame)

        async with asyncio.TaskGroup() as tasks:
            watching = tasks.create_task(watch())
            mode: SecondInput | None = None if second_input is None else second_input.value
            session = ChatSession(work, client, context_id, page, events, second_input=mode)
            asyncio.get_running_loop().add_signal_handler(signal.SIGINT, session.press_ctrl_c)
            stdin.read_lines(sys.stdin.fileno(), lambda line: events.put_nowait(Line(line)))
            await session.run()
            watching.cancel()
        again = suggestion.command("chat", context_id, options=("--url", url) if url else ())
        page.say(f"To continue: {again}")


async def _reached(stack: AsyncExitStack, settings: Settings, url: str | None) -> tuple[Conversations, Work]:
    client = await stack.enter_async_context(gateway_option.conversations(settings, url, SOURCE))
    if url is not None:
        return client, cast(Work, client)
    connections = Connections(settings)
    stack.push_async_callback(connections.close)
    return client, StoredWork(connections)


def _opening(system: str | None, model: str | None, tools: Sequence[dict[str, Any]]) -> list[AnyFrame]:
    settings = {
        name: word for name, word in (("system_instruction", system), ("model", model)) if word is not None
    }
    frames: list[AnyFrame] = []
    if settings:
        frames.append(LLMUpdateSettingsFrame(settings=settings))
    if tools:
        frames.append(LLMSetToolsFrame(tools=tuple(tools)))
    return frames
