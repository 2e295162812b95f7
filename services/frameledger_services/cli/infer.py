"""`frameledger infer`: ask a model about a conversation or given messages, without publishing anything."""

from __future__ import annotations

import asyncio
import sys
from typing import Annotated

import typer

from frameledger import strict_json
from frameledger.context import LLMContext
from frameledger.decode_error import DecodeError
from frameledger_services.cli.terminal import backend, escape, moment, options, output
from frameledger_services.database_types import Connection
from frameledger_services.providers.out_of_band import OutOfBand
from frameledger_services.providers.plugins import require_key
from frameledger_services.providers.settings import LLMSettings
from frameledger_services.settings import Settings
from frameledger_services.store import contexts

commands = typer.Typer()


@commands.command()
def infer(
    text: Annotated[
        str | None,
        typer.Argument(metavar="TEXT", help="A user message to append.", show_default=False),
    ] = None,
    context: Annotated[
        str | None,
        typer.Option(
            metavar="CONTEXT",
            callback=options.context_id,
            help="Id of the conversation to ask about.",
            show_default=False,
        ),
    ] = None,
    at: moment.Option = None,
    provider: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Provider. Default: FRAMELEDGER_INFERENCE_PROVIDER.", show_default=False
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Model, if the conversation sets none.", show_default=False),
    ] = None,
    max_tokens: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Maximum tokens of the answer.", show_default=False)
    ] = None,
    system: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="System prompt, replacing all others.", show_default=False),
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Ask a model and print its answer. Publishes nothing; the conversation does not change.

    Without --context and TEXT, messages are read from standard input: a JSON array of messages, a JSON object with
    `messages`, `tools`, `tool_choice` and `settings`, or plain text.

    Example: `frameledger infer "Sum this up in a sentence." --context ctx-1 --at 12`
    """
    if context is None and at is not None:
        raise typer.BadParameter("use it with --context", param_hint="--at")
    llm_context = (
        None if context is not None else LLMContext() if text is not None else _read(sys.stdin.buffer.read())
    )
    with backend.exit_on_error():
        settings = Settings.from_env()
        if named := provider or settings.inference_provider:
            require_key(named, settings)
        if llm_context is None:
            assert context is not None
            llm_context = asyncio.run(backend.query(settings, _stored, context, at))
        if text is not None:
            llm_context = llm_context.add_message({"role": "user", "content": text})
        inference = OutOfBand(settings, provider=provider, over=LLMSettings(model=model))
        answer = asyncio.run(_ask(inference, llm_context, max_tokens, system))
    if as_json:
        output.print_json_object({"provider": inference.service.provider, "text": answer})
    elif answer is not None:
        # A program that reads the answer gets it as the model wrote it.
        typer.echo(escape.lines(answer) if sys.stdout.isatty() else answer)


async def _ask(
    inference: OutOfBand, llm_context: LLMContext, max_tokens: int | None, system: str | None
) -> str | None:
    try:
        return await inference.run_inference(llm_context, max_tokens, system)
    finally:
        await inference.close()


async def _stored(connection: Connection, context_id: str, at: moment.At | None) -> LLMContext:
    conversation = await moment.find(connection, context_id, at)
    return (await contexts.context(connection, context_id, conversation.version)).context


def _read(given: bytes) -> LLMContext:
    text = given.decode(errors="replace")
    try:
        value = strict_json.loads(given)
    except DecodeError as error:
        if error.reason == "too_deep":
            raise typer.BadParameter(error.detail, param_hint="standard input") from None
        value = text
    try:
        match value:
            case list():
                return LLMContext(value)
            case {"messages": list()}:
                return LLMContext.from_wire(value)
            case dict():
                pass
            case _ if said := (value if isinstance(value, str) else text).strip():
                # A number or a null is text that is JSON by chance.
                return LLMContext([{"role": "user", "content": said}])
    except TypeError as error:
        raise typer.BadParameter(f"not a context: {error}", param_hint="standard input") from None
    raise typer.BadParameter("it has no message and no text", param_hint="standard input")
