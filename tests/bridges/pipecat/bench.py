"""The cost of the bridge: a pipeline with and without it in one run (`make bench-bridges`).

Times depend on the machine; what is held is their relation, and what a frame waits longer on its way from the model to
the assistant's half, with Kafka up, going down, and down.
"""

from __future__ import annotations

import asyncio
import gc
import time
import tracemalloc
from statistics import median, quantiles

from pipecat.frames.frames import (
    LLMContextFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMMessagesAppendFrame,
    LLMTextFrame,
)
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.services.llm_service import LLMService
from tests.bounds import BENCH
from tests.bridges.pipecat.bots import NOTHING_TELLS, Answer, Bot, complete_settings
from tests.bridges.pipecat.recording import Broker
from tests.support.answerers import answering
from tests.support.projecting import make_topics, projecting

from frameledger.context import LLMContext as OurContext
from frameledger_services.client import BrokerError, Client
from frameledger_services.pipecat import FrameledgerLLMService, FrameledgerObserver
from frameledger_services.pipecat.captured_frame import ASSISTANT, LLM, USER
from frameledger_services.pipecat.mirror import Mirror
from frameledger_services.providers.script import Script
from frameledger_services.providers.scripted import ScriptedLLMService

PAIRS, FRAMES = 60, 4_000
RTVI_PAIRS, RTVI_FRAMES = 30, 1_000
DELAYS, BETWEEN_SECONDS = 1_500, 0.004
QUESTIONS, WARM = 110, 10
WORD_MS = {"p50": 40, "p99": 100}
HOOK_US, HOOK_P99_US, SYNC_US, THROUGHPUT, DELAY_MS, MEMORY_MIB, RESTORE_MS = 5, 20, 50, 0.95, 1.0, 32, 50


class Away(Broker):
    async def publish(self, context_id, *frames, within):
        raise BrokerError("no broker answers")


def shown(name, value, goal, *, at_least=False):
    met = value >= goal if at_least else value <= goal
    print(f"{name:58} {value:9.2f}   goal {'>=' if at_least else '<='} {goal:<6} {'' if met else 'MISSED'}")


def test_what_a_handler_costs():
    ledger = FrameledgerObserver("bench", connect=Broker)
    capture = ledger._capture
    capture.context = LLMContext([{"role": "user", "content": f"Message {n}"} for n in range(200)])
    take, _ = capture.handlers(ASSISTANT, pushes=False)[LLMTextFrame]
    assert take is not None
    frames = [LLMTextFrame("word") for _ in range(20_000)]
    took = []
    gc.disable()
    for frame in frames:
        since = time.perf_counter_ns()
        take(frame)
        took.append(time.perf_counter_ns() - since)
    gc.enable()
    shown("handler, one token, us at p50", median(took) / 1e3, HOOK_US)
    shown("handler, one token, us at p99", quantiles(took, n=100)[98] / 1e3, HOOK_P99_US)
    for at in (USER, LLM):
        handlers = capture.handlers(at, pushes=True)
        since = time.perf_counter_ns()
        for frame in frames:
            assert handlers[type(frame)][0] is None
        shown(
            f"handler, a frame that is not taken ({at}), us", (time.perf_counter_ns() - since) / 2e7, HOOK_US
        )
    mirror, messages = Mirror(capture.context.messages, known=True), capture.context.messages
    took = []
    for _ in range(500):
        since = time.perf_counter_ns()
        mirror.changes(messages)
        took.append(time.perf_counter_ns() - since)
    shown("sync point, 200 messages, us at p50", median(took) / 1e3, SYNC_US)


async def flood(observers, frames, **options):
    """Returns the frames per second through both aggregators and the model, and the CPU microseconds per frame in the
    thread of the pipeline."""
    bot = Bot([Answer(["word "] * frames)], observers=observers, **options)
    took = used = 0.0

    async def play(bot):
        nonlocal took, used
        since, before = time.perf_counter(), time.thread_time()
        await bot.ask("Go")
        took, used = time.perf_counter() - since, time.thread_time() - before

    await bot.run(play)
    return frames / took, used / frames * 1e6


def rates_of_pairs(pairs, frames, **options):
    """Returns the median of with : without. The two of a pair, each way round in turn, had the same neighbours on the
    machine; the quartiles show how much those differ."""
    bare: list[tuple[float, float]] = []
    recorded: list[tuple[float, float]] = []
    for number in range(pairs):
        one = [(bare, []), (recorded, [FrameledgerObserver(f"bench-{number}", connect=Broker)])]
        for found, observers in one if number % 2 else reversed(one):
            gc.collect()  # not in the middle of one of them
            found.append(asyncio.run(flood(observers, frames, **options)))
    ratios = [with_[0] / without[0] for without, with_ in zip(bare, recorded, strict=True)]
    low, middle, high = quantiles(ratios, n=4)
    print(f"{frames} frames: at most {max(bare)[0]:.0f} a second without, {max(recorded)[0]:.0f} with")
    print(f"with : without, of {pairs} pairs: quarters {low:.3f}, {middle:.3f}, {high:.3f}")
    least = [min(used for _, used in found) for found in (bare, recorded)]
    print(f"us of the processor for a frame, in the pipeline's thread: {least[0]:.1f}, with {least[1]:.1f}")
    return middle


def test_frames_a_second_beside_the_same_without():
    """Without RTVI, which Pipecat adds by default, and which costs ten times as much as the rest of this pipeline."""
    ratio = rates_of_pairs(PAIRS, FRAMES)
    shown("frames a second, with : without, median of pairs", ratio, THROUGHPUT, at_least=True)


def test_frames_a_second_with_rtvi_beside_the_same_without():
    ratio = rates_of_pairs(RTVI_PAIRS, RTVI_FRAMES, enable_rtvi=True)
    shown("the same in a pipeline with RTVI", ratio, THROUGHPUT, at_least=True)


async def delays(observers, midway=None):
    """Returns the milliseconds from the model's push to the assistant aggregator, for single frames."""
    bot = Bot(observers=observers)
    pushed: dict[int, float] = {}
    took: list[float] = []
    bot.assistant.add_event_handler(
        "on_before_process_frame",
        lambda _, frame: (
            took.append(time.perf_counter() - pushed.pop(frame.id)) if frame.id in pushed else None
        ),
    )

    async def play(bot):
        await bot.model.push_frame(LLMFullResponseStartFrame())
        for number in range(DELAYS):
            if midway is not None and number == DELAYS // 2:
                midway()
            frame = LLMTextFrame("word ")
            pushed[frame.id] = time.perf_counter()
            await bot.model.push_frame(frame)
            await asyncio.wait([asyncio.ensure_future(_tick())])
        await bot.model.push_frame(LLMFullResponseEndFrame())
        await bot.settle()

    await bot.run(play)
    return quantiles([one * 1e3 for one in took], n=100)[98]


async def _tick():
    loop = asyncio.get_running_loop()
    done = loop.create_future()
    loop.call_later(BETWEEN_SECONDS, done.set_result, None)
    await done


def test_a_frame_waits_no_longer_whatever_kafka_does(settings, kafka):
    class GoingDown(Client):
        away = False

        async def publish(self, *words, **more):
            if GoingDown.away:
                raise BrokerError("no broker answers")
            return await super().publish(*words, **more)

    def ledger(name, connect):
        return [FrameledgerObserver(name, settings, connect=connect)]

    asyncio.run(make_topics(settings))
    bare, up, going, down = [], [], [], []
    for number in range(3):
        bare.append(asyncio.run(delays([])))
        up.append(asyncio.run(delays(ledger(f"up-{number}", lambda: Client(settings)))))
        GoingDown.away = False
        going.append(
            asyncio.run(
                delays(
                    ledger(f"going-{number}", lambda: GoingDown(settings)),
                    lambda: setattr(GoingDown, "away", True),
                )
            )
        )
        down.append(asyncio.run(delays(ledger(f"down-{number}", Away))))
    print(f"p99 without: {min(bare):.2f} ms")
    for name, found in (("up", up), ("going down", going), ("down", down)):
        shown(
            f"a frame's delay at p99 beyond that without, Kafka {name}, ms", min(found) - min(bare), DELAY_MS
        )


def test_memory_after_ten_minutes_without_a_broker():
    """Simulates volume: forty frames per second and a turn every five seconds."""
    ledger = FrameledgerObserver("bench", connect=Away)
    context = LLMContext()
    capture = ledger._capture
    capture.context = context
    take, _ = capture.handlers(ASSISTANT, pushes=False)[LLMTextFrame]
    assert take is not None
    ledger._outbox.start()
    tracemalloc.start()
    was = tracemalloc.get_traced_memory()[0]
    for number in range(120):
        for _ in range(200):
            take(LLMTextFrame("some words "))
        context.messages.append({"role": "assistant", "content": f"{number} " + "some words " * 200})
        capture.sync()
        while capture.items:
            NOTHING_TELLS.wait(0.005)
    found = (tracemalloc.get_traced_memory()[0] - was) / 2**20
    tracemalloc.stop()
    ledger._outbox._closing = True
    print(f"{ledger._outbox.unpublished} frames wait, {ledger.lost}")
    shown("memory after 24,000 frames without a broker, MiB", found, MEMORY_MIB)


async def first_words(llm, context):
    """Returns the milliseconds from each question to the first word in the pipeline."""
    bot = Bot(context=context, service=llm)
    took: list[float] = []
    asked = since = 0.0
    ended = 0

    def pushed(_, frame):
        nonlocal asked, since, ended
        if isinstance(frame, LLMTextFrame) and asked:
            took.append((time.perf_counter() - asked) * 1e3)
            asked = 0.0
        ended += isinstance(frame, LLMFullResponseEndFrame)

    def handles(_, frame):
        nonlocal asked
        if isinstance(frame, LLMContextFrame):
            asked = time.perf_counter()

    llm.add_event_handler("on_before_push_frame", pushed)
    llm.add_event_handler("on_before_process_frame", handles)

    async def play(bot):
        for number in range(QUESTIONS):
            await bot.queue(
                LLMMessagesAppendFrame([{"role": "user", "content": f"Question {number}"}], run_llm=True)
            )
            while ended <= number:
                await _tick()

    await bot.run(play)
    assert len(took) == QUESTIONS
    return sorted(took[WARM:])


class Direct(LLMService):
    """The same scripted model called in this process, as a provider's own LLM service does."""

    def __init__(self, model):
        super().__init__(settings=complete_settings(model="scripted"))
        self._model = model

    async def process_frame(self, frame, direction):
        await super().process_frame(frame, direction)
        if not isinstance(frame, LLMContextFrame):
            await self.push_frame(frame, direction)
            return
        await self.push_frame(LLMFullResponseStartFrame())
        asked = OurContext(messages=tuple(frame.context.messages))
        async for said in self._model.answer(self._model.request(asked)):
            if said.type == "LLMTextFrame":
                await self.push_frame(LLMTextFrame(said.text))
        await self.push_frame(LLMFullResponseEndFrame())


def test_first_word_through_our_workers_beside_the_direct_service(settings):
    script = Script.model_validate({"replies": [{"say": [{"delay": 0.05}, {"text": "Yes, at 22:40."}]}]})

    async def scene():
        await make_topics(settings)
        async with asyncio.timeout(BENCH), projecting(settings):
            direct = await first_words(Direct(ScriptedLLMService(script=script)), LLMContext())
            ledger = FrameledgerObserver("words", settings)
            llm = FrameledgerLLMService(ledger)
            context = await ledger.restore(within=BENCH)
            with answering(settings, lambda _: ScriptedLLMService(script=script)):
                through = await first_words(llm, context)
            for name, share in (("p50", 0.5), ("p99", 0.99)):
                one, other = (found[int(share * (len(found) - 1))] for found in (direct, through))
                print(f"first word at {name}, ms: {one:.1f} direct, {other:.1f} through our workers")
                shown(f"first word later than the direct service's at {name}, ms", other - one, WORD_MS[name])

    asyncio.run(scene())


def test_restore_of_two_hundred_messages(settings):
    async def scene():
        await make_topics(settings)
        async with asyncio.timeout(BENCH), projecting(settings):
            messages = [{"role": "user", "content": f"Message {n}"} for n in range(200)]
            first = FrameledgerObserver("long", settings)
            await first.restore(messages, within=BENCH)
            await first.finish()
            took = []
            for _ in range(5):
                ledger = FrameledgerObserver("long", settings)
                since = time.perf_counter()
                context = await ledger.restore(within=BENCH)
                took.append((time.perf_counter() - since) * 1e3)
                assert len(context.messages) == 200
                await ledger.finish()
            shown("restore, 200 messages, ms (with the fence and connecting)", min(took), RESTORE_MS)

    asyncio.run(scene())
