"""Function services in tests, on real servers with a real projector.

The test plays the model: it publishes the frames that an inference service would. Everything after the end of the
response is real.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from pydantic import SecretStr
from tests.bounds import ON_SERVERS, scaled
from tests.support import databases
from tests.support.causation import without_origin
from tests.support.killable import projector
from tests.support.pipeline import made
from tests.support.polling import NOTIFICATION_SECONDS

from frameledger.frames import (
    AnyFrame,
    FunctionCallFromLLM,
    FunctionCallsStartedFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMMessagesAppendFrame,
)
from frameledger_services.client import Client
from frameledger_services.functions import FunctionRegistry, FunctionService
from frameledger_services.settings import Settings
from frameledger_services.store.progress_channel import CHANNEL

QUICK = {
    "work_lease_secs": scaled(20.0),
    "work_heartbeat_secs": 0.1,
    "work_drain_secs": scaled(5.0),
    "work_grace_secs": scaled(5.0),
}
"""A short heartbeat, so that a worker soon learns what it has to stop, and a lease that does not expire on a busy
machine. These tests need not wait for the lease of a dead worker (`databases.without_takeover_delay`)."""

CONNECTIONS_LEFT_OPEN = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
"""aiokafka leaves a transport open when connecting is cancelled, and services stop here as soon as they have begun."""

SETTLED = ("done", "failed", "ambiguous", "cancelled", "forgotten")

_services = itertools.count(1)


@contextmanager
def stage(kafka, database_server, template):
    """Yields settings for servers on which a projector runs. At the end, every frame of a service must have a cause."""
    with databases.made(database_server, template=template) as (_, address):
        pipeline = made(kafka.bootstrap_servers, SecretStr(address), None)
        with projector(pipeline.settings):
            databases.without_takeover_delay(address)
            yield pipeline.settings.model_copy(update=QUICK)
            with psycopg.connect(address) as connection:
                assert without_origin(connection) == []
    # So that connections that aiokafka left open (CONNECTIONS_LEFT_OPEN) are found here, not in a later test.
    gc.collect()


@pytest.fixture(scope="module", name="settings")
def stage_settings(kafka, database_server, migrated_template):
    """Settings of a pipeline without a timekeeper, which the tests of a module share."""
    with stage(kafka, database_server, migrated_template) as settings:
        yield settings


def called(name: str, arguments: Any = None, tool_call_id: str | None = None, **more: Any):
    """Returns a call as a model asks for it."""
    return FunctionCallFromLLM(
        function_name=name,
        tool_call_id=tool_call_id or f"call-{uuid4().hex[:8]}",
        arguments={} if arguments is None else arguments,
        **more,
    )


class Conversation:
    """One conversation with a played model."""

    def __init__(
        self, client: Client, connection: psycopg.AsyncConnection, address: str, context_id: str
    ) -> None:
        self.context_id = context_id
        self._client = client
        self._connection = connection
        self._address = address

    async def publish(self, *frames: AnyFrame) -> None:
        await self._client.publish(self.context_id, *frames, wait=True)

    async def ask(self) -> str:
        """Publish a message of the user. Returns the run that it requests."""
        said = LLMMessagesAppendFrame(messages=({"role": "user", "content": "Please."},), run_llm=True)
        await self.publish(said)
        return (await self.open_runs())[-1]

    async def open_runs(self) -> list[str]:
        rows = await self.rows(
            "SELECT run_id FROM runs WHERE context_id = %s AND status = 'open' ORDER BY requested_version"
        )
        return [run_id for (run_id,) in rows]

    async def call(self, *calls: FunctionCallFromLLM, run_id: str | None = None, **batch: Any) -> None:
        """Make the model call functions, in the open run or in a new one."""
        run_id = run_id or next(iter(await self.open_runs()), None) or await self.ask()
        of_run = {"run_id": run_id, "attempt": 1}
        await self.publish(
            LLMFullResponseStartFrame(**of_run),
            FunctionCallsStartedFrame(function_calls=calls, **of_run, **batch),
            LLMFullResponseEndFrame(**of_run, finish_reason="tool_calls"),
        )

    async def settled(self, *tool_call_ids: str, statuses: Sequence[str] = SETTLED) -> list[str]:
        """Wait until these calls have settled. Returns their statuses."""

        async def all_settled():
            rows = dict(await self.rows("SELECT tool_call_id, status FROM tool_calls WHERE context_id = %s"))
            if all(rows.get(one) in statuses for one in tool_call_ids):
                return [rows[one] for one in tool_call_ids]
            return None

        found: list[str] = await self.until(all_settled)
        return found

    async def until_running(self, *tool_call_ids: str) -> None:
        await self.settled(*tool_call_ids, statuses=("running",))

    async def until_registered(self, pid: int) -> None:
        """Wait until this process is a live worker: calls of functions that nobody serves are answered with an error
        after a while."""

        async def is_registered():
            found = await self._connection.execute("SELECT FROM live_workers() WHERE pid = %s", [pid])
            return found.rowcount or None

        await self.until(is_registered)

    async def log(self, *, of: str | None = None) -> list[tuple[str, str, str | None]]:
        """Returns type, outcome and reason of every frame, or of those of one call."""
        rows = await self.rows(
            "SELECT type, outcome, reason, tool_call_id FROM frames WHERE context_id = %s ORDER BY version"
        )
        return [(kind, outcome, why) for kind, outcome, why, call in rows if of in (None, call)]

    async def payloads(self, kind: str) -> list[dict[str, Any]]:
        rows = await self.rows(
            "SELECT payload::text FROM frames WHERE context_id = %s AND type = %s ORDER BY version", kind
        )
        return [json.loads(payload) for (payload,) in rows]

    async def messages(self) -> list[dict[str, Any]]:
        found = (await self._client.context(self.context_id)).context.to_wire()["messages"]
        return list(found)

    async def told(self, tool_call_id: str) -> Any:
        """Returns the content of a call's tool message, parsed if it is JSON."""
        [content] = [
            one["content"] for one in await self.messages() if one.get("tool_call_id") == tool_call_id
        ]
        try:
            return json.loads(content)
        except ValueError:
            return content

    async def until(self, answer: Any) -> Any:
        return await until(self._address, answer, self.log)

    async def until_claims_finished(self, *, at_least: int = 0) -> None:
        """Wait until this many calls were claimed and the conversation has no open work."""

        async def finished():
            [(claimed, finished)] = await self.rows(
                "SELECT count(*), count(finished_at) FROM claims WHERE context_id = %s"
            )
            return True if claimed == finished >= at_least else None

        await self.until(finished)

    async def call_row(self, tool_call_id: str) -> dict[str, Any]:
        cursor = self._connection.cursor(row_factory=psycopg.rows.dict_row)
        await cursor.execute(
            "SELECT * FROM tool_calls WHERE context_id = %s AND tool_call_id = %s "
            "ORDER BY requested_version DESC LIMIT 1",
            (self.context_id, tool_call_id),
        )
        row = await cursor.fetchone()
        assert row is not None, "there is no such call"
        return row

    async def execute(self, query: Any, parameters: Any = ()) -> None:
        await self._connection.execute(query, parameters)

    async def rows(self, query: str, *parameters: Any) -> list[tuple[Any, ...]]:
        return await (await self._connection.execute(query, (self.context_id, *parameters))).fetchall()


async def until(address: str, answer: Any, otherwise: Any = None) -> Any:
    """Repeat a query whenever a projector has stored a batch, until the result is not None."""
    try:
        async with (
            asyncio.timeout(ON_SERVERS),
            await psycopg.AsyncConnection.connect(address, autocommit=True) as connection,
        ):
            await connection.execute(f"LISTEN {CHANNEL}")
            while (found := await answer()) is None:
                async for _ in connection.notifies(timeout=NOTIFICATION_SECONDS, stop_after=1):
                    pass
    except TimeoutError:
        raise AssertionError(await otherwise() if otherwise else "it did not happen") from None
    return found


def play(settings, registries, scenario, *, all_services=False, **options):
    """Run a scenario with a conversation and one or several services."""
    several = registries if isinstance(registries, list) else [registries]

    async def run():
        async with AsyncExitStack() as stack:
            services = [await stack.enter_async_context(serving(settings, one, **options)) for one in several]
            talk = await stack.enter_async_context(talking(settings))
            await scenario(services if all_services else services[0], talk)

    asyncio.run(run())


@asynccontextmanager
async def serving(
    settings: Settings, registry: FunctionRegistry, **options: Any
) -> AsyncIterator[FunctionService]:
    """A function service with a unique name."""
    options.setdefault("service", f"tools-{next(_services)}")
    service = FunctionService(settings, registry, **options)
    async with asyncio.timeout(2 * ON_SERVERS), service:
        yield service


@asynccontextmanager
async def talking(settings: Settings, context_id: str | None = None) -> AsyncIterator[Conversation]:
    """A conversation with a client of its own."""
    address = settings.database_url.get_secret_value()
    async with (
        Client(settings) as client,
        await psycopg.AsyncConnection.connect(address, autocommit=True) as connection,
    ):
        yield Conversation(client, connection, address, context_id or f"talk-{uuid4().hex[:8]}")


def until_begun(attempt: Callable[[float], bool]) -> None:
    """Call `attempt` with increasing deadlines in seconds until it returns that its call began in time. A deadline
    counts from the dispatch, so on a busy machine a short one may pass before the call begins, while a long one would
    make the test slow everywhere."""
    assert any(attempt(scaled(seconds)) for seconds in (1.0, 5.0, 25.0)), "no call began before its deadline"


class Gate:
    """Holds handlers until the test opens it, and counts them."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self._entries: asyncio.Queue[None] = asyncio.Queue()
        self.inside = 0
        self.entered = 0
        self.cancelled = 0

    async def until_entered(self, times: int = 1) -> None:
        async with asyncio.timeout(ON_SERVERS):
            for _ in range(times):
                await self._entries.get()

    async def __call__(self) -> None:
        self.entered += 1
        self.inside += 1
        self._entries.put_nowait(None)
        try:
            await self.open.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.inside -= 1


def returning(name: str) -> Any:
    """A function of that name, which returns its name."""

    def function() -> str:
        return name

    function.__name__ = name
    return function
