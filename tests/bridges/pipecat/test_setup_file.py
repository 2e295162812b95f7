"""Which conversation a pipeline of an unchanged program is, when others of its process have ended or never began."""

import asyncio
import threading

import pytest
from pipecat.frames.frames import StartFrame
from pipecat.processors.frame_processor import FrameProcessor
from pipecat.workers.runner import WorkerRunner
from tests.bounds import IN_PROCESS
from tests.bridges.pipecat.bots import Bot, until
from tests.bridges.pipecat.recording import Broker

from frameledger_services.pipecat import observer, setup_file

ENDS = ("LLMMirrorFrame", "EndFrame", "CancelFrame")


class Brokers:
    """One broker for all pipelines, which keeps the type and the conversation of each frame. It holds up ends."""

    def __init__(self):
        self.told = []
        self.ends_pass = threading.Event()
        self.ends_pass.set()
        self.holds = False

    def connect(self, *_, **__):
        brokers = self

        class Connected(Broker):
            async def publish(self, context_id, *frames, within):
                if any(one.frame.type == "EndFrame" for one in frames):
                    brokers.holds = True
                    await asyncio.to_thread(brokers.ends_pass.wait)
                brokers.told += [(context_id, one.frame.type) for one in frames]

        return Connected()

    def of(self, context_id):
        return [type_ for id_, type_ in self.told if id_ == context_id]


@pytest.fixture
def brokers(monkeypatch):
    monkeypatch.setenv("PIPECAT_SETUP_FILES", setup_file.__file__)
    monkeypatch.setenv("PIPECAT_CONTEXT_ID", "call-7")
    monkeypatch.setattr(observer, "FLUSH_SECONDS", IN_PROCESS)
    brokers = Brokers()
    monkeypatch.setattr(observer, "Client", brokers.connect)
    return brokers


def play(scene):
    asyncio.run(asyncio.wait_for(scene, IN_PROCESS))


@pytest.mark.regression("bridge 7")
def test_a_pipeline_that_never_starts_ends_its_recording_and_leaves_its_id(brokers):
    class Stuck(FrameProcessor):
        async def setup(self, setup):
            await super().setup(setup)
            await until(lambda: "StartFrame" in brokers.of("call-7"))

        async def process_frame(self, frame, direction):
            await super().process_frame(frame, direction)
            if not isinstance(frame, StartFrame):
                await self.push_frame(frame, direction)

    async def scene():
        stuck = Bot(extra=[Stuck()])
        stuck.worker._start_timeout_secs = 0.01
        runner = WorkerRunner(handle_sigint=False)
        await runner.add_workers(stuck.worker)
        await runner.run()
        await Bot().run(lambda bot: bot.ask("Hi"))

    play(scene())
    assert {context_id for context_id, _ in brokers.told} == {"call-7"}
    ends = [type_ for type_ in brokers.of("call-7") if type_ in ENDS]
    assert ends == ["LLMMirrorFrame", "CancelFrame", "LLMMirrorFrame", "EndFrame"]


@pytest.mark.regression("bridge 8")
def test_an_id_is_in_use_until_the_last_frames_of_its_pipeline_are_published(brokers):
    async def scene():
        brokers.ends_pass.clear()
        first, second, third = Bot(), Bot(), Bot()
        ending = asyncio.create_task(first.run(lambda bot: bot.ask("First")))
        await until(lambda: brokers.holds)

        async def told(bot):
            await bot.ask("Second")
            brokers.ends_pass.set()

        await second.run(told)
        await ending
        await third.run(lambda bot: bot.ask("Third"))

    play(scene())
    assert brokers.of("call-7-2").count("LLMMirrorFrame") == 1
    ends = [type_ for type_ in brokers.of("call-7") if type_ in ENDS]
    assert ends == ["LLMMirrorFrame", "EndFrame"] * 2


@pytest.mark.regression("bridge 11")
def test_a_pipeline_that_is_cancelled_while_it_is_set_up_ends_its_recording(brokers):
    class Connecting(FrameProcessor):
        async def setup(self, setup):
            await super().setup(setup)
            await asyncio.Event().wait()

    async def scene():
        bot, runner, running = Bot(extra=[Connecting()]), WorkerRunner(handle_sigint=False), []
        run = bot.worker.run

        async def run_as_a_task(params):
            running.append(asyncio.create_task(run(params)))
            await asyncio.wait(running)

        vars(bot.worker)["run"] = run_as_a_task
        await runner.add_workers(bot.worker)
        runs = asyncio.create_task(runner.run())
        await until(lambda: "StartFrame" in brokers.of("call-7"))
        running[0].cancel()
        await until(lambda: "CancelFrame" in brokers.of("call-7"))
        await until(lambda: not any(one.name == "frameledger call-7" for one in threading.enumerate()))
        runs.cancel()
        await asyncio.wait([runs])

    play(scene())
