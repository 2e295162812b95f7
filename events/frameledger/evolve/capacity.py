"""How many messages and bytes a context may still add under its limits (R8.4).

Everything that is accepted fits: the words of a turn, the text of a response and the messages of a call reserve their
capacity when they arrive, not when they are written. So a frame that ends something can always write it. Messages and
bytes are counted since the history was last replaced. Messages that were retracted or replaced count too, so no message
has to be read. Everything open counts with its largest form, slightly more than it will need.
"""

from __future__ import annotations

from frameledger.evolve.draft import Draft
from frameledger.evolve.outcome import Reason
from frameledger.evolve.state import Call
from frameledger.evolve.text import Text
from frameledger.frames import FunctionCallInProgressFrame, FunctionCallResultFrame, KnownFrame
from frameledger.json_values import size

ENVELOPE = 1024
"""Bytes of a message that the fold makes, excluding its content."""

CHARACTER = 8
"""The maximum number of bytes of a character in JSON: half of a pair, written as its escape."""

OF_A_CALL = 3
"""Messages of a call that has not started: the call, its tool message, and the result of an asynchronous one."""

Need = tuple[int, int]
"""A number of messages and of bytes."""


def is_limited(draft: Draft) -> bool:
    """Whether limits on the size apply: not in a recording or a mirror, whose messages another program writes."""
    limits = draft.terms.limits
    if not limits or draft.terms.recording or draft.terms.mirror is not None:
        return False
    return "context_messages" in limits or "context_bytes" in limits


def fits(draft: Draft, need: Need, *, anew: bool = False) -> bool:
    """Whether `need` fits under the limits in addition to what is written and what is open. With `anew` it replaces
    what is written."""
    limits = draft.terms.limits
    messages, length = (0, 0) if anew else (draft.place.next_position - 1, draft.place.bytes)
    open_messages, open_length = _reserved(draft)
    return messages + open_messages + need[0] <= limits.get("context_messages", float("inf")) and (
        length + open_length + need[1] <= limits.get("context_bytes", float("inf"))
    )


def refusal(draft: Draft, frame: KnownFrame) -> Reason | None:
    """Returns `context_full` if there is no capacity for what this frame adds, otherwise None. Starts and final results
    of calls, and heard text, settle more than they add: their own rules call `fits`."""
    if not is_limited(draft):
        return None
    need = _need(draft, frame)
    anew = frame.type in ("LLMMessagesUpdateFrame", "LLMContextFrame")
    return None if need is None or fits(draft, need, anew=anew) else "context_full"


def of_start(start: FunctionCallInProgressFrame | Call, call: Call | None) -> Need:
    """Returns what the start of a call adds to what is open. `call` is the announced call, if any, which has reserved
    its messages. `start` has the names and arguments: the frame, or the call itself if no worker starts it
    (RA5.client)."""
    messages = OF_A_CALL if call is None else 0
    words = size(start.arguments) + 2 * size(start.tool_call_id) + size(start.function_name)
    return messages, messages * ENVELOPE + CHARACTER * words


def of_result(frame: FunctionCallResultFrame) -> Need:
    """Returns what the result of a call adds; the call's message is already written or reserved."""
    return 0, CHARACTER * (size(frame.result) + size(frame.tool_call_id)) + ENVELOPE


def _need(draft: Draft, frame: KnownFrame) -> Need | None:
    match frame.type:
        case "TranscriptionFrame":
            return _of_text(frame.text, None if draft.turn is None else draft.turn.words)
        case "TextFrame" | "LLMTextFrame" | "VisionTextFrame":
            response = draft.speech.response
            if response is None or not frame.append_to_context:
                return None
            return _of_text(frame.text, response.text)
        case "LLMThoughtTextFrame":
            thought = draft.speech.thought
            return None if thought is None or thought.llm is None else _of_text(frame.text, thought.text)
        case "LLMThoughtEndFrame":
            thought = draft.speech.thought
            if thought is None or thought.llm is None or frame.signature is None:
                return None
            first = thought.text is None
            return int(first), CHARACTER * size(frame.signature) + first * ENVELOPE
        case "LLMMessagesAppendFrame" | "LLMMessagesUpdateFrame":
            return len(frame.messages), sum(map(size, frame.messages))
        case "LLMMessageRewriteFrame":
            return None if frame.message is None else (0, size(frame.message))
        case "LLMContextFrame":
            return len(frame.context.messages), sum(map(size, frame.context.messages))
        case "FunctionCallsStartedFrame":
            return OF_A_CALL * len(frame.function_calls), OF_A_CALL * ENVELOPE * len(frame.function_calls)
        case "FunctionCallResultFrame":
            if frame.settled_as == "resolved" or (
                frame.properties is not None and not frame.properties.is_final
            ):
                return 1, of_result(frame)[1]
            return None
        case "LLMSetToolsFrame":
            return 1, size(frame.tools) + size(draft.terms.tools) + ENVELOPE
        case _:
            return None


def _of_text(text: str, before: Text | None) -> Need:
    """Returns what a piece of text adds, including the space before it; the first piece also adds the message."""
    first = before is None
    return int(first), CHARACTER * (len(text) + 1) + first * ENVELOPE


def _reserved(draft: Draft) -> Need:
    """Returns what everything open will write: turn, response, thought, calls and held inputs."""
    turn, speech, wanted = draft.turn, draft.speech, draft.runs.wanted
    texts = [
        None if turn is None else turn.words,
        None if speech.response is None else speech.response.text,
        None if speech.thought is None else speech.thought.text,
    ]
    open_texts = [text for text in texts if text is not None]
    messages = len(open_texts)
    length = sum(CHARACTER * text.length + ENVELOPE for text in open_texts)
    for call in draft.calls.open.values():
        running = call.running
        # A running call has its two messages; if it is asynchronous, its last one is still to come.
        messages += OF_A_CALL if running is None else int(not running.synchronous)
        length += ENVELOPE * (OF_A_CALL if running is None else 1)
    if wanted is not None:
        messages += len(wanted.held)
        length += sum(map(size, wanted.held))
    return messages, length
