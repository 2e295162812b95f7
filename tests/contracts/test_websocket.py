"""The base of websocket providers: lost connections and reconnects. The contract of all providers is tested
elsewhere."""

import asyncio
import json
from contextlib import aclosing

import pytest
from tests.bounds import IN_PROCESS
from tests.contracts.providers import until
from tests.contracts.websocket_model import PlainWebsocketLLMService, serving
from websockets.asyncio.client import connect
from websockets.asyncio.server import serve
from websockets.exceptions import ConnectionClosed

from frameledger.context import LLMContext
from frameledger_services.providers import WebsocketReconnectedError, errors, websocket
from frameledger_services.providers.backoff import backoff
from frameledger_services.providers.script import Delay, Reply, Script, Text

HELLO = LLMContext([{"role": "user", "content": "Hello?"}])


class Listening(PlainWebsocketLLMService):
    """Records the calls of its hook."""

    def __init__(self, **options):
        super().__init__(**options)
        self.losses: list[str] = []
        self.add_event_handler("on_connection_error", lambda _, sentence: self.losses.append(sentence))


def tried(test, *steps, **options):
    async def life():
        script = Script(replies=[Reply(say=steps or (Text(text="Hello."),))])
        async with asyncio.timeout(IN_PROCESS), serving(script) as (server, address):
            service = Listening(address=address, **options)
            try:
                return await test(server, service)
            finally:
                await service.cleanup()

    return asyncio.run(life())


def test_the_server_gets_exactly_the_bytes_of_the_request():
    async def test(server, service):
        request = service.request(HELLO.add_message({"role": "user", "content": "猫 \ud83d"}))
        async with aclosing(service.answer(request)) as answer:
            assert [frame async for frame in answer]
        assert [text.encode() for text in server.received] == [request.content]

    tried(test)


def test_a_connection_is_made_at_the_start_and_used_again():
    async def test(server, service):
        await service.start()
        assert server.connections == 1
        for _ in range(3):
            assert await service.run_inference(HELLO) == "Hello."
        assert server.connections == 1
        await service.stop()
        await until(lambda: not server.open_connections)

    tried(test)


def test_requests_at_once_have_a_connection_each():
    async def test(server, service):
        await asyncio.gather(*[service.run_inference(HELLO) for _ in range(5)])
        assert server.connections == 5
        await asyncio.gather(*[service.run_inference(HELLO) for _ in range(5)])
        assert server.connections == 5

    tried(test)


def test_a_lost_connection_is_made_again_and_the_caller_is_told_to_begin_again():
    async def test(server, service):
        server.lose_next = 1
        with pytest.raises(WebsocketReconnectedError) as raised:
            await service.run_inference(HELLO)
        assert isinstance(raised.value, errors.ProviderUnavailableError)
        assert len(service.losses) == 1
        assert server.connections == 2
        assert await service.run_inference(HELLO) == "Hello."
        assert server.connections == 2

    tried(test)


def test_a_reconnect_that_fails_gives_the_original_error():
    async def test(server, service):
        def gone(service, sentence):
            service.address = "ws://127.0.0.1:1"

        service.add_event_handler("on_connection_error", gone)
        server.lose_next = 1
        with pytest.raises(errors.ConnectionLostError) as raised:
            await service.run_inference(HELLO)
        assert not isinstance(raised.value, WebsocketReconnectedError)
        assert isinstance(raised.value.__cause__, ConnectionClosed)
        assert raised.value.code != "no_connection"
        # Of the connection that was lost, and of those that could not be made.
        assert len(service.losses) == 2

    tried(test)


def test_between_attempts_to_connect_it_backs_off_and_gives_up_after_the_last(monkeypatch):
    tries = []

    def waits(so_far, *, first, longest):
        tries.append(so_far)
        return 0.0

    monkeypatch.setattr(websocket, "backoff", waits)

    async def test(server, service):
        service.address = "ws://127.0.0.1:1"
        with pytest.raises(errors.ConnectionLostError):
            await service.run_inference(HELLO)
        assert tries == list(range(service.RECONNECT_ATTEMPTS - 1))

    tried(test)


def test_the_backoff_grows_with_each_attempt_up_to_a_bound_and_has_jitter():
    for tries, least in ((0, 0.2), (1, 0.4), (2, 0.8), (3, 1.6)):
        waits = [backoff(tries, first=0.2, longest=5) for _ in range(20)]
        assert all(least <= wait <= least + 0.2 for wait in waits)
        assert len(set(waits)) > 1
    assert backoff(100_000, first=0.2, longest=5) == 5


def test_without_reconnecting_the_first_loss_is_the_error():
    async def test(server, service):
        server.lose_next = 1
        with pytest.raises(errors.ConnectionLostError) as raised:
            await service.run_inference(HELLO)
        assert not isinstance(raised.value, WebsocketReconnectedError)
        assert server.connections == 1

    tried(test, reconnect_on_error=False)


def test_an_idle_connection_that_died_is_replaced_before_the_request():
    async def test(server, service):
        await service.start()
        [connection] = server.open_connections
        await connection.close()
        await until(lambda: not server.open_connections)
        await until(lambda: service._idle[0].close_code is not None)
        assert await service.run_inference(HELLO) == "Hello."
        assert service.losses == []

    tried(test)


def test_nobody_there_is_an_error_after_a_few_attempts():
    async def test(server, service):
        service.address = "ws://127.0.0.1:1"
        await service.start()
        with pytest.raises(errors.ConnectionLostError) as raised:
            await service.run_inference(HELLO)
        assert raised.value.code == "no_connection"
        assert "127.0.0.1" not in raised.value.message
        assert len(service.losses) == 2

    tried(test)


@pytest.mark.regression("worker 156")
@pytest.mark.parametrize("status", [401, 403, 404])
def test_a_refused_handshake_is_told_as_a_refusal_and_not_tried_again(status):
    tries = []

    def refuse(connection, request):
        tries.append(request)
        return connection.respond(status, "no")

    async def test(server, service):
        async with serve(server.serve, "127.0.0.1", 0, process_request=refuse) as refusing:
            service.address = f"ws://127.0.0.1:{refusing.sockets[0].getsockname()[1]}"
            with pytest.raises(errors.ProviderRefusedError, match=str(status)):
                await service.run_inference(HELLO)
            assert len(tries) == len(service.losses) == 1
            await service.start()  # which only logs it

    tried(test)


@pytest.mark.regression("worker 156")
def test_an_address_of_no_websocket_is_told_as_a_refusal_without_the_address():
    async def test(server, service):
        service.address = "https://models.example/secret"
        with pytest.raises(errors.ProviderRefusedError) as raised:
            await service.run_inference(HELLO)
        assert "secret" not in raised.value.message
        assert len(service.losses) == 1

    tried(test)


def test_a_handshake_that_is_refused_for_now_is_tried_again():
    tries = []

    def refuse_once(connection, request):
        tries.append(request)
        return connection.respond(503, "later") if len(tries) == 1 else None

    async def test(server, service):
        async with serve(server.serve, "127.0.0.1", 0, process_request=refuse_once) as listening:
            service.address = f"ws://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
            assert await service.run_inference(HELLO) == "Hello."
            await service.cleanup()
        assert len(tries) == 2

    tried(test)


def test_an_answer_that_was_left_takes_its_connection_with_it():
    async def test(server, service):
        answer = service.answer(service.request(HELLO))
        await anext(answer)
        await answer.aclose()
        await until(lambda: not server.open_connections)

    tried(test, Text(text="Hello."), Delay(delay=60))


def test_what_a_server_said_before_it_left_is_read_and_then_the_loss_is_told():
    async def leaves(connection):
        await connection.recv()
        for word in ("Half ", "of it"):
            await connection.send(json.dumps({"type": "text", "text": word}))

    async def life():
        async with asyncio.timeout(IN_PROCESS), serve(leaves, "127.0.0.1", 0) as listening:
            port = listening.sockets[0].getsockname()[1]
            service = Listening(address=f"ws://127.0.0.1:{port}")
            answer = service.answer(service.request(HELLO))
            first = await anext(answer)
            # It has closed before the second piece is asked for.
            [line] = service._slots
            await line.connection.wait_closed()
            assert (first.text, (await anext(answer)).text) == ("Half ", "of it")
            with pytest.raises(WebsocketReconnectedError):
                await anext(answer)
            await service.cleanup()

    asyncio.run(life())


@pytest.mark.regression("worker 151")
@pytest.mark.parametrize(
    "event", ["{no json", b"\xff", "[" * 100_000], ids=["no JSON", "no UTF-8", "too deep"]
)
def test_an_event_that_cannot_be_read_is_transient_trouble_of_the_provider(event):
    async def says(connection):
        await connection.recv()
        await connection.send(event)
        await connection.wait_closed()

    async def life():
        async with asyncio.timeout(IN_PROCESS), serve(says, "127.0.0.1", 0) as listening:
            port = listening.sockets[0].getsockname()[1]
            service = Listening(address=f"ws://127.0.0.1:{port}")
            with pytest.raises(errors.ProviderUnavailableError):
                await service.run_inference(HELLO)
            # It is not known where the next answer would begin on this connection.
            assert not service._idle
            await service.cleanup()

    asyncio.run(life())


def test_closing_the_service_ends_its_answers_at_once():
    async def test(server, service):
        answer = service.answer(service.request(HELLO))
        await anext(answer)
        await service.cancel()
        await until(lambda: not server.open_connections)

        async def rest():
            return [frame async for frame in answer]

        with pytest.raises(errors.ConnectionLostError):
            await rest()
        assert server.connections == 1

    tried(test, Text(text="Hello."), Delay(delay=60))


def test_the_steps_of_an_answer_may_be_taken_by_different_tasks():
    async def test(server, service):
        answer = service.answer(service.request(HELLO))
        async with aclosing(answer):
            return [await asyncio.create_task(anext(answer)) for _ in range(3)]

    assert len(tried(test)) == 3


class AsInTheSeed(Listening):
    """Keeps its connection in itself."""

    async def _connect_websocket(self):
        self._websocket = await connect(self.address, proxy=None)

    async def _disconnect_websocket(self):
        if self._websocket:
            await self._websocket.close()
        self._websocket = None


@pytest.mark.regression("repair 16")
def test_a_subclass_may_keep_its_connection_in_itself_and_many_requests_have_one_each():
    async def life():
        script = Script(replies=[Reply(say=(Text(text="Hello."),))])
        async with asyncio.timeout(IN_PROCESS), serving(script) as (server, address):
            service = AsInTheSeed(address=address)
            await service.start()
            server.lose_next = 1
            with pytest.raises(WebsocketReconnectedError):
                await service.run_inference(HELLO)
            async with asyncio.TaskGroup() as tasks:
                several = [tasks.create_task(service.run_inference(HELLO)) for _ in range(3)]
            assert [one.result() for one in several] == ["Hello."] * 3
            assert service._websocket is None
            await service.stop()
            await until(lambda: not server.open_connections)

    asyncio.run(life())


def test_a_subclass_that_gives_no_connection_is_told_so():
    async def test(server, service):
        async def connects_to_nothing():
            return None

        service._connect_websocket = connects_to_nothing
        with pytest.raises(TypeError, match="_connect_websocket returned no connection"):
            await service.run_inference(HELLO)

    tried(test)
