"""Function calls put together from the pieces in which a model streams them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from frameledger.frames import FinishReason, FunctionCallFromLLM, FunctionCallsStartedFrame
from frameledger_services.providers.errors import ConnectionLostError, IncompleteCallError
from frameledger_services.providers.request import encoded

Announce = Callable[[Sequence[FunctionCallFromLLM]], FunctionCallsStartedFrame]
"""Creates the announcement of an answer's calls."""

CUSTOM_INPUT = "input"
"""The argument of a call of a custom tool, whose input is free text: calls on the log have JSON."""

_MANY_PIECES = 16

_DECODER = json.JSONDecoder()

_ID_BYTES = 255
"""The maximum length of an id in a frame."""


@dataclass(slots=True)
class _Call:
    tool_call_id: str
    function_name: str
    pieces: list[str]
    is_text: bool = False
    """Whether it calls a custom tool, whose input is free text."""

    extra_content: dict[str, Any] = field(default_factory=dict)
    """The `extra_content` that the server added to it."""

    @property
    def arguments(self) -> str:
        """The arguments so far, as JSON text."""
        text = "".join(self.pieces)
        return encoded({CUSTOM_INPUT: text}).decode() if self.is_text else text

    @property
    def said(self) -> str:
        """The arguments as the model gave them: some servers send them more than once."""
        return self.arguments if self.is_text else _once(self.arguments)

    @property
    def is_empty(self) -> bool:
        """Whether no arguments have arrived yet."""
        return not self.is_text and not any(piece.strip() for piece in self.pieces)

    def is_complete(self) -> bool:
        """Returns whether the text so far is JSON. Called before each piece: the pieces are joined and parsed only if
        the last one ends like an object or a list."""
        last = next((piece.rstrip() for piece in reversed(self.pieces) if piece.strip()), "")
        may_be = self.is_text or len(self.pieces) < _MANY_PIECES or last.endswith(("}", "]"))
        return may_be and _is_json(self.arguments)

    def is_whole(self, *, empty_is_whole: bool) -> bool:
        """Returns whether the arguments are known to be complete. For free text this cannot be known."""
        return not self.is_text and (_is_json(self.said) or (empty_is_whole and not self.arguments.strip()))


class CallPieces:
    """The calls of one answer, by their place. Pieces of several calls may come interleaved.

    Servers that give every call the place 0 are distinguished from those that repeat an id or a name in each piece: see
    `_begins`.
    """

    def __init__(self) -> None:
        self._calls: list[tuple[int, _Call]] = []
        self._at: dict[int, _Call] = {}

    def __contains__(self, place: int) -> bool:
        return place in self._at

    def add(
        self,
        place: int | None,
        *,
        tool_call_id: str | None = None,
        function_name: str | None = None,
        arguments: str | None = None,
        custom_input: str | None = None,
        extra_content: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        """Add a piece to its call; an id or a name arrives once.

        A call of a custom tool has `custom_input` instead of `arguments`. The place is 0 if a server gives none.
        """
        place = place or 0
        call = self._at.get(place)
        if call is None or _begins(call, tool_call_id, function_name, arguments):
            call = self._at[place] = _Call("", "", [])
            self._calls.append((place, call))
        call.tool_call_id = call.tool_call_id or tool_call_id or ""
        call.function_name = call.function_name or function_name or ""
        if custom_input is not None:
            call.is_text = True
        call.extra_content.update(extra_content)
        if piece := custom_input or arguments:
            call.pieces.append(piece)

    def extra_contents(self) -> list[Mapping[str, Any]]:
        """Returns what the server added to each call, in the order of `whole`."""
        return [call.extra_content for call in self._ordered()]

    def broken_off(self, provider: str) -> ConnectionLostError:
        """Returns the error of a stream that ended without a finish reason: the rest is missing, even if the calls look
        complete."""
        where = f", in a call of {self._calls[-1][1].function_name or 'a function'}" if self._calls else ""
        return ConnectionLostError(f"{provider} ended its answer{where} without a finish reason.")

    def made(self, reason: FinishReason | None) -> list[FunctionCallFromLLM]:
        """Returns the calls of an answer that ended for this reason; None stands for a word of the server's own, which
        may be its end of a turn. An answer that a filter stopped has no calls: the provider treats it as one that
        should not have been given. Raises `IncompleteCallError` as `whole`.
        """
        if reason == "content_filter":
            return []
        return self.whole(stopped_early=reason not in ("stop", "tool_calls"), empty_is_whole=reason is None)

    def whole(self, *, stopped_early: bool, empty_is_whole: bool = False) -> list[FunctionCallFromLLM]:
        """Returns the calls in the order of their places, each with its arguments as the JSON text that arrived.

        With `stopped_early` the model was cut short: then arguments that are not JSON raise `IncompleteCallError`. If
        the model ended on its own, bad arguments, also two different objects, are its own mistake, and are returned so
        that the model can read the error. Missing arguments count as an empty object; if the model was cut short, only
        with `empty_is_whole`.
        """
        ordered = self._ordered()
        for call in ordered:
            if not call.function_name or (stopped_early and not call.is_whole(empty_is_whole=empty_is_whole)):
                name = call.function_name or "a function without a name"
                raise IncompleteCallError(
                    f"The answer ended in the middle of a call of {name}; no call was made."
                )
        return [
            FunctionCallFromLLM(
                function_name=call.function_name,
                tool_call_id=_storable(call.tool_call_id, number),
                arguments=call.said if call.arguments.strip() else "{}",
            )
            for number, call in enumerate(ordered)
        ]

    def _ordered(self) -> list[_Call]:
        return [call for _, call in sorted(self._calls, key=lambda one: one[0])]


def _begins(call: _Call, tool_call_id: str | None, function_name: str | None, arguments: str | None) -> bool:
    """Returns whether a piece begins a call other than the one at its place. It has to name a function, because some
    servers give every piece of one call a new id. With another id it begins a call. Without ids it begins one if the
    call before has all its arguments and the piece has something new; with another name, also if that call has no
    arguments.
    """
    if not function_name:
        return False
    if tool_call_id and call.tool_call_id:
        return tool_call_id != call.tool_call_id
    if not call.function_name:
        return False
    is_another = function_name != call.function_name
    says_more = is_another or bool(arguments and arguments.strip())
    return (is_another and call.is_empty) or (says_more and call.is_complete())


def _once(arguments: str) -> str:
    """Returns the object of arguments that arrived as several equal objects, apart from empty ones. vLLM may repeat all
    of them after their last piece, and gateways to Claude send an empty object before the first.
    """
    found: list[tuple[object, str]] = []
    at = 0
    try:
        while at < len(arguments):
            if arguments[at].isspace():
                at += 1
                continue
            value, end = _DECODER.raw_decode(arguments, at)
            found.append((value, arguments[at:end]))
            at = end
    except (ValueError, RecursionError):
        return arguments
    if len(found) < 2 or not all(isinstance(value, dict) for value, _ in found):
        return arguments
    (first, said), *others = [one for one in found if one[0]] or found
    return said if all(value == first for value, _ in others) else arguments


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _storable(tool_call_id: str, number: int) -> str:
    # An id that is not globally unique is replaced where the call is published.
    try:
        length = len(tool_call_id.encode())
    except UnicodeEncodeError:  # half of a character
        length = 0
    return tool_call_id if 0 < length <= _ID_BYTES and "\x00" not in tool_call_id else f"call_{number}"
