"""A real Kafka is killed while a bot speaks, and restarted or not. The pipeline never waits for it."""

import asyncio
from contextlib import contextmanager

import pytest
from tests.bounds import ON_SERVERS
from tests.bridges.pipecat.bots import Answer, Bot, until
from tests.bridges.pipecat.recording import as_bytes, stored_bytes
from tests.support.formatted_broker import formatted
from tests.support.projecting import make_topics

from frameledger.fold import Conversation, fold
from frameledger.record import decode
from frameledger_services.embedded import java, kafka, ports
from frameledger_services.embedded.running import start, stop, wait_until_ready
from frameledger_services.event_log.reader import last_records
from frameledger_services.event_log.topics import TopicNames
from frameledger_services.pipecat import FrameledgerObserver, FramesLostError, observer
from frameledger_services.settings import Settings

pytestmark = pytest.mark.servers


class Broker:
    """A Kafka that can be killed."""

    def __init__(self, directory):
        self._program = kafka.prepare(
            formatted(directory), port := ports.choose(0), software=java.packaged()
        ).program
        self.settings = Settings(kafka_bootstrap_servers=f"{ports.HOST}:{port}", topic_partitions=1)
        self.rise()

    @property
    def lives(self):
        return self._process.poll() is None

    def rise(self):
        self._process = start(self._program)
        wait_until_ready(self._program, self._process)

    def kill(self):
        self._process.kill()
        self._process.wait()

    def stop(self):
        stop(self._program, self._process)


@contextmanager
def broker_in(directory):
    broker = Broker(directory)
    try:
        yield broker
    finally:
        broker.stop()


async def on_the_log(settings, context_id):
    """Returns the frames of a conversation on the broker."""
    topic = TopicNames(settings.topic_prefix).frames
    return [
        decode(record.value)
        async for record in last_records(settings, topic, 100_000)
        if record.key == context_id.encode()
    ]


@pytest.mark.long
def test_a_bot_talks_on_while_kafka_is_gone_and_what_it_said_arrives_if_kafka_comes_back(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(observer, "FLUSH_SECONDS", ON_SERVERS)

    async def comes_back(broker):
        ledger = FrameledgerObserver("call-7", broker.settings)
        bot = Bot([Answer([f"Answer {n}", ", yes."]) for n in range(20)], observers=[ledger])

        async def play(bot):
            await bot.ask("Is it there?")
            await until(lambda: ledger._outbox.unpublished == 0)
            # During an answer.
            bot.model.answers[:0] = [Answer(["It", " goes"], stops_at=1)]
            await bot.say("Now it goes")
            await bot.model.stopped.wait()
            broker.kill()
            await bot.interrupt()
            waiting = []
            for number in range(10):
                # Nothing in the pipeline waits for the broker, which is down.
                await bot.ask(f"Question {number}")
                waiting.append(ledger._outbox.unpublished)
            assert not broker.lives
            assert waiting == sorted(waiting)
            assert waiting[0] > 0
            assert ledger.lag > 0
            await asyncio.to_thread(broker.rise)
            await until(lambda: ledger._outbox.unpublished == 0)
            await bot.ask("Is it back?")
            await until(lambda: ledger._outbox.unpublished == 0)
            assert ledger.lag == 0

        await bot.run(play)
        assert ledger.lost == {}
        frames = await on_the_log(broker.settings, "call-7")
        folded = fold(frames, Conversation.new("call-7"))
        assert stored_bytes(folded.messages) == as_bytes(bot.context.messages)
        assert len(bot.context.messages) == 26
        assert not any(frame.type == "pipecat/GapFrame" for frame in frames)

    async def stays_away(broker):
        ledger = FrameledgerObserver("call-8", broker.settings, strict=True)
        bot = Bot([Answer(["One."]), Answer(["Two."])], observers=[ledger])

        async def play(bot):
            await bot.ask("First")
            await until(lambda: ledger._outbox.unpublished == 0)
            broker.kill()
            # It is not waited for at the end; one that is there may be slow.
            monkeypatch.setattr(observer, "FLUSH_SECONDS", 0.5)
            await bot.ask("Second")

        # It ends although its last frames cannot be published.
        await bot.run(play)
        assert [one["content"] for one in bot.context.messages] == ["First", "One.", "Second", "Two."]
        assert set(ledger.lost) == {"unpublished"}
        with pytest.raises(FramesLostError, match="unpublished"):
            await ledger.finish()

    async def scene(broker):
        await make_topics(broker.settings)
        async with asyncio.timeout(ON_SERVERS):
            await comes_back(broker)
            await stays_away(broker)

    with broker_in(tmp_path) as broker:
        asyncio.run(scene(broker))
