"""An unreachable broker, one that receives every frame twice, and errors inside of the bridge."""

import asyncio
import threading

import pytest
from pipecat.frames.frames import LLMTextFrame, TTSSpeakFrame
from pipecat.processors.aggregators.llm_context import LLMContext
from tests.bounds import IN_PROCESS
from tests.bridges.pipecat.bots import Answer, Bot, until
from tests.bridges.pipecat.recording import Broker, Recording, as_bytes, stored_bytes

from frameledger.fold import Conversation, Folding, fold
from frameledger.frames import LLMContextEraseFrame
from frameledger_services.client import (
    BrokerError,
    ConversationParkedError,
    FramesRefusedError,
    FramesUnacknowledgedError,
    delivery,
)
from frameledger_services.pipecat import FramesLostError, Restored, observer
from frameledger_services.pipecat.mirror import Positions
from frameledger_services.pipecat.restore import RestoredConversation

ONCE = r"Call restore\(\) once"


class AwayBroker(Broker):
    """A broker that is unreachable until it is restored. Half of the frames that failed had arrived."""

    def __init__(self):
        super().__init__()
        self.away = True
        self.refusals = 0

    async def publish(self, context_id, *frames, within):
        if not self.away:
            await super().publish(context_id, *frames, within=within)
            return
        self.refusals += 1
        if self.refusals % 2:
            raise BrokerError("no broker answers")
        half = len(frames) // 2
        await super().publish(context_id, *frames[:half], within=within)
        raise FramesUnacknowledgedError("not acknowledged", [one.frame for one in frames[half:]])


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch):
    monkeypatch.setattr(delivery, "PAUSE_SECONDS", 0.005)


async def one_talk(bot):
    await bot.ask("One")
    await bot.ask("Two")


def test_a_broker_that_comes_back_gets_everything_once_and_in_order():
    broker = AwayBroker()
    recording, bot = Recording(broker=broker), Bot([Answer(["Yes."])])

    async def play(bot):
        await one_talk(bot)
        await until(lambda: broker.refusals >= 5)
        assert recording.observer.lag > 0
        broker.away = False

    recording.run(bot, play)


def test_what_is_said_twice_counts_once():
    class Stammering(Broker):
        async def publish(self, context_id, *frames, within):
            for _ in range(2):
                await super().publish(context_id, *frames, within=within)

    recording, bot = Recording(broker=Stammering()), Bot([Answer(["Yes."])])
    asyncio.run(asyncio.wait_for(_run(recording, bot, one_talk), IN_PROCESS))
    folded = fold(recording.broker.frames, Conversation.new("call-1"))
    assert stored_bytes(folded.messages) == as_bytes(bot.context.messages)
    assert len(recording.broker.frames) == 2 * len({one.id for one in recording.broker.frames})


async def _run(recording, bot, play):
    bot.worker.add_observer(recording.observer)
    await bot.run(play)


def test_a_broker_that_stays_away_costs_the_pipeline_nothing_but_five_seconds_at_its_end(monkeypatch):
    monkeypatch.setattr("frameledger_services.pipecat.observer.FLUSH_SECONDS", 0.05)
    recording, bot = Recording(broker=AwayBroker(), strict=True), Bot([Answer(["Yes."])])

    async def play(bot):
        await one_talk(bot)
        # On a busy machine the thread may not have tried yet.
        await until(lambda: recording.observer._outbox.why is not None)

    asyncio.run(asyncio.wait_for(_run(recording, bot, play), IN_PROCESS))
    assert len(bot.context.messages) == 4
    assert recording.observer.lost["unpublished"] > 10
    with pytest.raises(FramesLostError, match="unpublished") as lost:
        asyncio.run(recording.observer.finish())
    assert isinstance(lost.value.__cause__, BrokerError | FramesUnacknowledgedError)


def test_beyond_the_bound_evidence_goes_and_the_messages_stay_right(monkeypatch):
    # Otherwise the tokens share so few frames that the bound is not reached.
    monkeypatch.setattr("frameledger_services.pipecat.captured_items.MAX_JOINED", 1)
    broker = AwayBroker()
    recording = Recording(broker=broker)
    recording.observer._outbox._pending._max_frames = 200
    bot = Bot([Answer(["a "] * 100) for _ in range(20)])
    most = 0

    async def play(bot):
        nonlocal most
        for number in range(20):
            await bot.ask(f"Question {number}")
            if number == 10:
                bot.context.messages.pop(0)
            most = max(most, len(recording.observer._outbox._pending))
        await until(lambda: not recording.observer._capture.items)
        broker.away = False

    asyncio.run(asyncio.wait_for(_run(recording, bot, play), IN_PROCESS))
    assert most <= 200
    folded = fold(broker.frames, Conversation.new("call-1"))
    assert stored_bytes(folded.messages) == as_bytes(bot.context.messages)
    gaps = [one for one in broker.frames if one.type == "pipecat/GapFrame"]
    assert sum(gap.model_extra["frames"].get("LLMTextFrame", 0) for gap in gaps) > 500
    assert set(recording.observer.lost) == {"dropped"}


def test_a_frame_that_is_refused_is_told_by_its_hash_and_the_others_arrive():
    class Strict(Broker):
        async def publish(self, context_id, *frames, within):
            bad = [
                one.frame
                for one in frames
                if "xyzzy" in one.encoded.decode() and one.frame.type == "LLMTextFrame"
            ]
            if bad:
                raise FramesRefusedError("too large", [one.frame for one in frames])
            await super().publish(context_id, *frames, within=within)

    recording, bot = Recording(broker=Strict()), Bot([Answer(["xyzzy", " is a word"])])
    asyncio.run(asyncio.wait_for(_run(recording, bot, lambda bot: bot.ask("Hi")), IN_PROCESS))
    (refused,) = recording.of("pipecat/RefusedFrame")
    assert refused.model_extra["refused"] == "LLMTextFrame"
    assert len(refused.model_extra["sha256"]) == 64
    assert recording.observer.lost == {"refused": 1}
    folded = fold(recording.broker.frames, Conversation.new("call-1"))
    assert stored_bytes(folded.messages) == as_bytes(bot.context.messages)


@pytest.mark.parametrize(
    "place", ["_taking", "_chosen", "_append", "mirror", "terms", "translate", "encode", "hook", "open"]
)
def test_whatever_fails_inside_the_call_goes_on(monkeypatch, place):
    def broken(*_, **__):
        raise RuntimeError("broken on purpose")

    recording = Recording()
    capture = recording.observer._capture
    match place:
        case "mirror":
            monkeypatch.setattr("frameledger_services.pipecat.capture.Mirror.changes", broken)
        case "terms":
            monkeypatch.setattr("frameledger_services.pipecat.capture.Terms.changes", broken)
        case "translate":
            monkeypatch.setattr("frameledger_services.pipecat.outgoing.translate", broken)
        case "encode":
            monkeypatch.setattr("frameledger_services.pipecat.outgoing.EncodedFrame.of", broken)
        case "hook":
            monkeypatch.setattr(recording.observer._hooks, place, broken)
        case "open":
            monkeypatch.setattr(recording.observer._session, "begin", broken)
        case _:
            monkeypatch.setattr(capture, place, broken)
    bot = Bot([Answer(["Yes."]), Answer(["No."])])
    asyncio.run(asyncio.wait_for(_run(recording, bot, one_talk), IN_PROCESS))
    assert [one["role"] for one in bot.context.messages] == ["user", "assistant"] * 2
    assert recording.observer.lost


def test_a_comparison_that_failed_once_says_everything_at_the_next_point():
    recording = Recording()
    capture = recording.observer._capture
    failed = []

    class Once:
        def changes(self, messages):
            failed.append(len(messages))
            raise RuntimeError("broken on purpose")

    bot = Bot([Answer(["Yes."]), Answer(["No."])])

    async def play(bot):
        await bot.ask("One")
        vars(capture)["_mirror"] = Once()
        await bot.ask("Two")

    asyncio.run(asyncio.wait_for(_run(recording, bot, play), IN_PROCESS))
    assert len(failed) == 1
    folded = fold(recording.broker.frames, Conversation.new("call-1"))
    assert stored_bytes(folded.messages) == as_bytes(bot.context.messages)


def test_frames_that_are_not_what_their_class_says_are_evidence():
    recording, bot = Recording(), Bot()

    async def play(bot):
        await bot.queue(LLMTextFrame("a"))
        spoken = TTSSpeakFrame("b")
        spoken.text = object()
        await bot.queue(spoken)
        await bot.settle()

    recording.run(bot, play)


def test_a_second_context_is_said_in_one_error(caplog):
    recording, bot, other = Recording(), Bot([Answer(["Yes."])]), Bot()
    bot.pipeline.processors.insert(-1, other.assistant)
    recording.run(bot, lambda bot: bot.ask("Hi"))
    (line,) = [one for one in caplog.records if one.name == "frameledger.pipecat"]
    assert "uses another context" in line.message


@pytest.mark.regression("bridge 52")
@pytest.mark.parametrize("speaks", [False, True], ids=["written", "spoken"])
def test_a_conversation_that_is_erased_while_its_pipeline_runs_begins_no_other_one(speaks):
    recording, bot = Recording(), Bot([Answer(["Yes."]), Answer(["No."])], speaks=speaks)

    async def play(bot):
        await bot.ask("One")
        await until(lambda: recording.observer._outbox.unpublished == 0)
        recording.broker.frames.append(LLMContextEraseFrame(why="asked"))
        await bot.ask("Two")

    asyncio.run(asyncio.wait_for(_run(recording, bot, play), IN_PROCESS))
    folding, frames = Folding(Conversation.new("call-1")), recording.broker.frames
    steps = [folding.step(one) for one in frames]
    later = next(place for place, one in enumerate(frames, 1) if isinstance(one, LLMContextEraseFrame))
    assert len(steps) - later > 8
    assert all(step is None for step in steps[later:])


@pytest.mark.regression("bridge 15")
def test_a_second_pipeline_of_an_observer_whose_recording_has_ended_is_said(caplog):
    recording, first = Recording(), Bot([Answer(["Yes."])])
    second = Bot([Answer(["No."])], context=first.context)
    recording.run(first, lambda bot: bot.ask("Hi"))
    count = len(recording.broker.frames)
    second.worker.add_observer(recording.observer)
    asyncio.run(asyncio.wait_for(second.run(lambda bot: bot.ask("Again")), IN_PROCESS))
    (line,) = [one for one in caplog.records if one.name == "frameledger.pipecat"]
    assert "is not recorded: the recording ended" in line.message
    assert (len(recording.broker.frames), recording.observer.lost) == (count, {})


@pytest.mark.regression("bridge 21")
@pytest.mark.parametrize("shares", [False, True], ids=["own context", "one context"])
def test_a_second_pipeline_of_an_observer_that_records_is_said_and_changes_nothing(caplog, shares):
    recording, first = Recording(), Bot([Answer(["Yes."]), Answer(["Yes."])])
    second = Bot([Answer(["No."])], context=first.context if shares else LLMContext())

    async def both(bot):
        await bot.ask("Hi")
        second.worker.add_observer(recording.observer)
        await second.run(lambda other: other.ask("Other"))
        await bot.ask("Again")

    recording.run(first, both)
    (line,) = [one for one in caplog.records if one.name == "frameledger.pipecat"]
    assert "is not recorded: its observer records another pipeline" in line.message
    assert [one.text for one in recording.of("TranscriptionFrame")] == ["Hi", "Again"]
    assert len(recording.of("LLMRunFrame")) == 2


@pytest.mark.regression("bridge 22")
def test_of_two_restores_at_once_one_is_refused_and_a_pipeline_that_began_meanwhile_keeps_its_context(
    monkeypatch,
):
    is_asked, answers = threading.Event(), threading.Event()

    async def restore_later(*_, **__):
        is_asked.set()
        await asyncio.to_thread(answers.wait, IN_PROCESS)
        return RestoredConversation([], Positions(), True, [], None, Restored())

    monkeypatch.setattr(observer, "restore_conversation", restore_later)
    recording, bot = Recording(), Bot([Answer(["Yes."])])

    async def scene():
        restoring = asyncio.create_task(recording.observer.restore())
        await asyncio.to_thread(is_asked.wait, IN_PROCESS)
        with pytest.raises(RuntimeError, match=ONCE):
            await recording.observer.restore()

        async def play(bot):
            await bot.ask("Hi")
            answers.set()
            with pytest.raises(RuntimeError, match=ONCE):
                await restoring
            await bot.ask("Again")

        await _run(recording, bot, play)

    # No thread outlives the scene for longer than the bound: the loop's end waits for them.
    asyncio.run(asyncio.wait_for(scene(), IN_PROCESS))
    assert len(recording.check().messages) == 4


class Closing(Broker):
    """A broker whose thread is known, and that says when it is closed."""

    def __init__(self):
        super().__init__()
        self.is_closed = threading.Event()

    async def close(self):
        self.thread = threading.current_thread()
        self.is_closed.set()


@pytest.mark.regression("bridge 28")
@pytest.mark.parametrize("how", ["fails", "is cancelled", "gets tools that are none"])
def test_a_restore_that_fails_leaves_no_thread_and_no_client_and_can_be_repeated(monkeypatch, how):
    is_asked = threading.Event()

    async def restore_badly(*_, **__):
        is_asked.set()
        if how == "fails":
            raise ConversationParkedError("call-7")
        if how == "is cancelled":
            await asyncio.Event().wait()
        return RestoredConversation([], Positions(), True, [], None, Restored())

    async def restore_well(*_, **__):
        return RestoredConversation([], Positions(), True, [], None, Restored())

    brokers: list[Closing] = []

    def connect():
        brokers.append(Closing())
        return brokers[-1]

    ledger = observer.FrameledgerObserver("call-7", connect=connect)

    async def restore():
        is_asked.clear()
        restoring = asyncio.create_task(ledger.restore(tools=7 if how.startswith("gets") else None))
        await asyncio.to_thread(is_asked.wait, IN_PROCESS)
        if how == "is cancelled":
            restoring.cancel()
        await asyncio.wait([restoring])
        assert restoring.cancelled() or restoring.exception() is not None

    async def scene():
        monkeypatch.setattr(observer, "restore_conversation", restore_badly)
        for count in range(1, 4):
            await restore()
            assert len(brokers) == count
        for broker in brokers:
            assert await asyncio.to_thread(broker.is_closed.wait, IN_PROCESS)
            await asyncio.to_thread(broker.thread.join, IN_PROCESS)
            assert not broker.thread.is_alive()
        monkeypatch.setattr(observer, "restore_conversation", restore_well)
        bot = Bot([Answer(["Yes."])], context=await ledger.restore(), observers=[ledger])
        await bot.run(lambda bot: bot.ask("Hi"))
        assert ledger.lost == {}
        return bot

    bot = asyncio.run(asyncio.wait_for(scene(), IN_PROCESS))
    *failed, succeeded = brokers
    assert [one.frames for one in failed] == [[]] * 3
    assert stored_bytes(fold(succeeded.frames, Conversation.new("call-7")).messages) == as_bytes(
        bot.context.messages
    )


@pytest.mark.regression("bridge 28")
def test_a_recording_that_did_not_begin_does_not_end_the_conversation_of_others(monkeypatch):
    async def is_parked(*_, **__):
        raise ConversationParkedError("call-7")

    monkeypatch.setattr(observer, "restore_conversation", is_parked)
    recording = Recording()

    async def scene():
        with pytest.raises(ConversationParkedError):
            await recording.observer.restore()
        await recording.observer.finish()

    asyncio.run(asyncio.wait_for(scene(), IN_PROCESS))
    assert recording.broker.frames == []
