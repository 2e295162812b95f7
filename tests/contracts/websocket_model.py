"""Both ends of a small model behind a websocket: a real server that plays a script, and the provider that uses it.

The client sends a request's body. The server answers with events: text, thought (a piece; the last one has `end` and
the signature), call_piece (interleaved), error, and done, which ends the exchange.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from websockets.asyncio.client import connect
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from frameledger import frames as f
from frameledger_services.providers import errors
from frameledger_services.providers.script import Call, Delay, Fail, Script, Text, Thought
from frameledger_services.providers.scripted import ScriptedLLMAdapter
from frameledger_services.providers.websocket import WebsocketLLMService

ERRORS = {
    "overloaded": errors.ProviderUnavailableError,
    "rate_limited": errors.ProviderUnavailableError,
    "refused_context": errors.RefusedContextError,
    "refused": errors.ProviderRefusedError,
}


class PlainAdapter(ScriptedLLMAdapter):
    provider = "plain"


class PlainWebsocketLLMService(WebsocketLLMService):
    provider = "plain"
    adapter_class = PlainAdapter
    default_model = "plain-1"
    RECONNECT_FIRST_SECONDS = 0.0

    def __init__(self, *, address, **options):
        super().__init__(**options)
        self.address = address

    async def _connect_websocket(self):
        return await connect(self.address, proxy=None)

    async def _exchange(self, request):
        await self._ws_send(request.content.decode())
        calls: dict[int, dict[str, str]] = {}
        thinking = False
        while True:
            event = await self._ws_recv()
            match event["type"]:
                case "text":
                    yield f.LLMTextFrame(text=event["text"])
                case "thought":
                    if not thinking:
                        yield f.LLMThoughtStartFrame(append_to_context=True, llm=self.provider)
                    thinking = not event.get("end")
                    if event["text"]:
                        yield f.LLMThoughtTextFrame(text=event["text"])
                    if event.get("end"):
                        yield f.LLMThoughtEndFrame(signature=event["signature"])
                case "call_piece":
                    yield None
                    calls.setdefault(event["index"], {"arguments": ""})
                    calls[event["index"]]["arguments"] += event["arguments"]
                    calls[event["index"]] |= {key: event[key] for key in ("id", "name") if key in event}
                case "error" if event["kind"] == "incomplete_call":
                    raise errors.IncompleteCallError("The arguments of a call were cut off.")
                case "error":
                    kind = ERRORS[event["kind"]]
                    more = (
                        {"retry_after": event["retry_after"]}
                        if kind is errors.ProviderUnavailableError
                        else {}
                    )
                    raise kind(event["message"], **more)
                case "done":
                    if calls:
                        yield self.announcement(request, [in_form(calls[index]) for index in sorted(calls)])
                    yield f.LLMFullResponseEndFrame(
                        finish_reason=event["finish_reason"], usage=f.Usage(**event["usage"])
                    )
                    return


def in_form(call):
    return f.FunctionCallFromLLM(
        function_name=call["name"], tool_call_id=call["id"], arguments=json.loads(call["arguments"])
    )


class Server:
    """Plays the first reply of a script to every request; `received` has their exact texts."""

    def __init__(self, script: Script):
        self.reply = script.replies[0]
        self.open_streams = 0
        self.connections = 0
        self.open_connections: set[ServerConnection] = set()
        self.received: list[str] = []
        self.lose_next = 0
        """How many of the next requests are answered by closing the connection."""

    async def serve(self, connection):
        self.connections += 1
        self.open_connections.add(connection)
        try:
            async for message in connection:
                self.received.append(message)
                if self.lose_next:
                    self.lose_next -= 1
                    await connection.close(code=1011)
                    return
                self.open_streams += 1
                try:
                    await self.play_until_closed(connection)
                finally:
                    self.open_streams -= 1
        except ConnectionClosed:
            pass
        finally:
            self.open_connections.discard(connection)

    async def play_until_closed(self, connection):
        playing = asyncio.ensure_future(self.play(connection))
        closed = asyncio.ensure_future(connection.wait_closed())
        await asyncio.wait([playing, closed], return_when=asyncio.FIRST_COMPLETED)
        for task in (playing, closed):
            task.cancel()
        await asyncio.wait([playing, closed])
        if not playing.cancelled() and not isinstance(playing.exception(), ConnectionClosed):
            playing.result()

    async def play(self, connection):
        async def send(event, /, **fields):
            await connection.send(json.dumps({"type": event, **fields}))

        calls = [step for step in self.reply.say if isinstance(step, Call)]
        for step in self.reply.say:
            match step:
                case Text():
                    for piece in pieces(step.text):
                        await send("text", text=piece)
                case Thought():
                    for piece in pieces(step.thought):
                        await send("thought", text=piece)
                    await send("thought", text="", end=True, signature=step.signature)
                case Delay():
                    # Nobody waits so long: the client leaves before.
                    await connection.wait_closed()
                case Fail(fail="timeout"):
                    await connection.wait_closed()
                case Fail(fail="cut"):
                    connection.transport.abort()
                    return
                case Fail():
                    await send("error", kind=step.fail, message=step.message, retry_after=step.retry_after)
                    return
        await self.send_calls(send, calls)
        reason = self.reply.finish_reason or ("tool_calls" if calls else "stop")
        usage = {} if self.reply.usage is None else self.reply.usage.model_dump(exclude_none=True)
        await send("done", finish_reason=reason, usage=usage)

    async def send_calls(self, send, calls):
        texts = [json.dumps(call.arguments) for call in calls]
        for index, call in enumerate(calls):
            await send("call_piece", index=index, id=call.id or f"id-{index}", name=call.call, arguments="")
        for at in range(0, max(map(len, texts), default=0), 4):
            for index, text in enumerate(texts):
                await send("call_piece", index=index, arguments=text[at : at + 4])


def pieces(text):
    return [text[at : at + 5] for at in range(0, len(text), 5)]


@asynccontextmanager
async def serving(script: Script) -> AsyncIterator[tuple[Server, str]]:
    server = Server(script)
    async with serve(server.serve, "127.0.0.1", 0, close_timeout=0.5) as listening:
        port = listening.sockets[0].getsockname()[1]
        yield server, f"ws://127.0.0.1:{port}"
