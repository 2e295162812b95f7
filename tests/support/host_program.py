"""A host program with plain clients of aiokafka that also uses ours: `python -m tests.support.host_program`.

It prints as JSON what differs in the process while our clients run and after they ended, compared with before they were
imported: attributes of aiokafka's modules, classes and functions; handlers, hooks and settings of the process; and the
behaviour of the plain clients. The settings come from the environment. The topic `neighbour` has to exist, and a
projector to run.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import importlib
import json
import logging
import os
import pkgutil
import signal
import socket
import sys
import threading
import warnings
from collections.abc import AsyncIterator, Mapping
from types import FunctionType
from typing import Any

import aiokafka
import structlog
from aiokafka.errors import KafkaError
from aiokafka.record.default_records import _DefaultRecordBatchBuilderPy
from aiokafka.structs import TopicPartition

NOWHERE = "127.0.0.1:1"
TALK = "talk"

# The number of producers in this process, ours and others, which aiokafka counts.
COUNTED = "aiokafka.producer.producer.AIOKafkaProducer._PRODUCER_CLIENT_ID_SEQUENCE"


class BadName(str):
    """The name of a header whose bytes are not UTF-8."""

    def encode(self, *_: object) -> bytes:
        return b"\xff\xfe"


def things() -> dict[str, Any]:
    """Returns the state that a process has only once, by name."""
    found: dict[str, Any] = {}
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "aiokafka":
            _attributes(name, vars(module), found)
    for number in signal.valid_signals():
        found[f"handler of signal {number}"] = signal.getsignal(number)
    for name in ("", *logging.root.manager.loggerDict):
        if name.partition(".")[0] in ("", "aiokafka"):
            logger = logging.getLogger(name)
            for attribute in ("level", "propagate", "disabled"):
                found[f"logger {name}: {attribute}"] = getattr(logger, attribute)
            found[f"logger {name}: handlers"] = tuple(map(id, logger.handlers))
    loop = asyncio.get_running_loop()
    return found | {
        "class of loggers": logging.getLoggerClass(),
        "factory of log records": logging.getLogRecordFactory(),
        "logging disabled": logging.root.manager.disable,
        "structlog configured": structlog.is_configured(),
        "event loop policy": asyncio.get_event_loop_policy(),
        "event loop": type(loop),
        "task factory": loop.get_task_factory(),
        "exception handler": loop.get_exception_handler(),
        "debug of the loop": loop.get_debug(),
        "garbage collection": (
            gc.isenabled(),
            gc.get_threshold(),
            gc.get_freeze_count(),
            tuple(gc.callbacks),
        ),
        "switch interval": sys.getswitchinterval(),
        "recursion limit": sys.getrecursionlimit(),
        "hooks": (sys.excepthook, sys.unraisablehook, sys.displayhook, threading.excepthook),
        "trace": (sys.gettrace(), sys.getprofile(), threading.gettrace(), threading.getprofile()),
        "warnings": (tuple(warnings.filters), warnings.showwarning),
        "timeout of sockets": socket.getdefaulttimeout(),
        "environment": dict(os.environ),
        "working directory": os.getcwd(),
        "path of modules": tuple(sys.path),
    }


def _attributes(owner: str, attributes: Mapping[str, Any], found: dict[str, Any]) -> None:
    for name, value in attributes.items():
        place = f"{owner}.{name}"
        found[place] = value
        if isinstance(value, FunctionType):
            found[f"{place}()"] = (value.__code__, value.__defaults__, value.__kwdefaults__)
        is_here = isinstance(value, type) and f"{value.__module__}.{value.__qualname__}" == place
        if is_here:
            _attributes(place, vars(value), found)


def differences(before: dict[str, Any]) -> list[str]:
    """Returns the names whose object changed, was added or was removed."""
    now = things()
    return sorted(
        name
        for name in (before.keys() | now.keys()) - {COUNTED}
        if name not in before
        or name not in now
        or not (before[name] is now[name] or (_is_plain(before[name]) and before[name] == now[name]))
    )


def _is_plain(value: Any) -> bool:
    return isinstance(value, int | float | str | tuple | dict) and not isinstance(value, type)


class Lines(logging.Handler):
    """The messages of the log."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(record.getMessage())


async def behaviour(servers: str, topic: str, lines: Lines) -> dict[str, Any]:
    """Returns how plain clients of this process behave: what they log about an unreachable broker, each time, and what
    they read from a topic with a header name that is not UTF-8, which they refuse."""
    lines.said.clear()
    for _ in range(2):
        away = aiokafka.AIOKafkaProducer(bootstrap_servers=NOWHERE)
        with contextlib.suppress(KafkaError):
            await away.start()
        await away.stop()
    logged = list(lines.said)
    read: list[str] = []
    async with _started(aiokafka.AIOKafkaConsumer(bootstrap_servers=servers)) as consumer:
        place = TopicPartition(topic, 0)
        consumer.assign([place])
        consumer.seek(place, 0)
        try:
            while True:
                read.append((await consumer.getone()).value.decode())
        except UnicodeDecodeError as error:
            read.append(type(error).__name__)
        at = await consumer.position(place)
    return {"logged": logged, "read": read, "position": at}


async def fill(servers: str, topic: str) -> None:
    """Publish records with a plain producer, then a batch with a header name that is not UTF-8."""
    async with _started(aiokafka.AIOKafkaProducer(bootstrap_servers=servers)) as producer:
        for number in range(3):
            await producer.send_and_wait(topic, b"%d" % number, partition=0)
        builder = _DefaultRecordBatchBuilderPy(2, 0, False, -1, -1, -1, 1 << 20)
        builder.append(0, 0, b"key", b"value", [(BadName("name"), b"")])
        request = aiokafka.client.ProduceRequest(None, -1, 10_000, [(topic, [(0, bytes(builder.build()))])])
        leader = producer.client.cluster.leader_for_partition(TopicPartition(topic, 0))
        answer = await producer.client.send(leader, request)
        assert answer.topics[0][1][0][1] == 0


@contextlib.asynccontextmanager
async def _started(client: Any) -> AsyncIterator[Any]:
    await client.start()
    try:
        yield client
    finally:
        await client.stop()


async def ours(while_they_run: Any) -> list[dict[str, Any]]:
    """Run a conversation with a model that calls a function, all in this process. Returns its messages."""
    from frameledger.frames import LLMMessagesAppendFrame
    from frameledger_services.client import Client
    from frameledger_services.functions import FunctionRegistry, FunctionService
    from frameledger_services.inference import InferenceService
    from frameledger_services.providers.script import Script
    from frameledger_services.providers.scripted import ScriptedLLMService
    from frameledger_services.settings import Settings

    settings = Settings.from_env()
    registry = FunctionRegistry()

    async def weather(params: Any) -> None:
        await params.result_callback("rain")

    registry.register_function("weather", weather)
    script = {
        "replies": [
            {"when": {"result_of": "weather"}, "say": [{"text": "It rains."}]},
            {"say": [{"call": "weather"}]},
        ]
    }
    model = ScriptedLLMService(script=Script.model_validate_json(json.dumps(script)))
    async with (
        Client(settings) as client,
        FunctionService(settings, registry),
        InferenceService(settings, model),
    ):
        question = {"role": "user", "content": "How is the weather?"}
        asked = LLMMessagesAppendFrame(messages=(question,), run_llm=True)
        (said,) = await client.publish(TALK, asked, wait=True)
        async for frame in client.follow(TALK, said.version or 0):
            if json.loads(frame.payload).get("finish_reason") == "stop":
                break
        await while_they_run()
        stored = await client.context(TALK)
        return list(stored.context.to_wire()["messages"])


async def main() -> None:
    servers = os.environ["FRAMELEDGER_KAFKA_BOOTSTRAP_SERVERS"]
    topic = os.environ["FRAMELEDGER_TOPIC_PREFIX"] + "neighbour"
    lines = Lines()
    logging.getLogger("aiokafka").addHandler(lines)
    for module in pkgutil.walk_packages(aiokafka.__path__, "aiokafka."):
        importlib.import_module(module.name)
    await fill(servers, topic)
    plain = await behaviour(servers, topic, lines)
    before = things()
    said: dict[str, Any] = {"plain": plain, "before": len(before)}

    async def while_they_run() -> None:
        said["changed"] = differences(before)
        said["plain beside ours"] = await behaviour(servers, topic, lines)

    said["messages"] = await ours(while_they_run)
    said["changed afterwards"] = differences(before)
    print(json.dumps(said))


if __name__ == "__main__":
    asyncio.run(main())
