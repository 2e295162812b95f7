"""Converts a script of the contract suite to the responses of a model server."""

import json
import re
from collections.abc import Iterator

from frameledger_services.bench.inference import answers as wire
from frameledger_services.providers.script import Call, Delay, Fail, Reply, Text, Thought

STATUS = {"overloaded": 529, "rate_limited": 429, "refused_context": 400, "refused": 401}


def said(reply: Reply) -> wire.Reply:
    """Returns the server's response for a reply. A reply that begins with a failure with a status is an HTTP error."""
    if reply.say and isinstance(reply.say[0], Fail) and reply.say[0].fail in STATUS:
        failed = reply.say[0]
        wait = None if failed.retry_after is None else f"{failed.retry_after:g}"
        return wire.Failure(STATUS[failed.fail], failed.message or "no reason", retry_after=wait)
    usage = reply.usage
    return wire.Answer(
        tuple(_pieces(reply)),
        finish=reply.finish_reason or _finish(reply),
        tokens=wire.Tokens() if usage is None else wire.Tokens(usage.input_tokens, usage.output_tokens),
    )


def _finish(reply: Reply) -> str:
    if any(isinstance(step, Fail) and step.fail == "incomplete_call" for step in reply.say):
        return "length"
    return "tool_calls" if any(isinstance(step, Call) for step in reply.say) else "stop"


def _pieces(reply: Reply) -> Iterator[wire.Piece]:
    calls: list[Call] = []
    for step in reply.say:
        match step:
            case Text(text=text):
                yield from map(wire.Text, cut(text))
            case Thought(thought=text, signature=signature):
                yield from map(wire.Thought, cut(text))
                if signature is not None:
                    yield wire.Signature(signature)
            case Call():
                calls.append(step)
            case Delay(delay=secs):
                yield wire.Pause(secs)
            case Fail(fail="timeout"):
                yield wire.Hang()
            case Fail(fail="incomplete_call"):
                yield wire.Call(0, "cut", calls[0].call)
                yield wire.Arguments(0, '{"city": "Os')
                return
            case Fail():
                yield wire.Cut()
    yield from interleaved(calls)


def cut(text: str) -> list[str]:
    """Returns text in pieces of about a token each."""
    return re.findall(r"\s*\S{1,6}|\s+$", text)


def interleaved(calls: list[Call]) -> Iterator[wire.Piece]:
    """Returns the pieces of all calls, interleaved, of two characters each."""
    waiting = []
    for at, call in enumerate(calls):
        yield wire.Call(at, call.id or f"call_{at}", call.call)
        arguments = call.arguments if isinstance(call.arguments, str) else json.dumps(call.arguments)
        waiting.append([arguments[i : i + 2] for i in range(0, len(arguments), 2)])
    for turn in range(max(map(len, waiting), default=0)):
        for at, pieces in enumerate(waiting):
            if turn < len(pieces):
                yield wire.Arguments(at, pieces[turn])
