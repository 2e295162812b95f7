"""Finds the new part of a resent history: a client of OpenAI's API sends all messages each time.

**The rule.** The stored history and the sent one are compared as a client sees a conversation: message by message from
the beginning, and never as bytes.

1. *Seen* are users' messages and the words of the assistant. *Unseen* are what functions and operators add: calls and
   their results, thoughts, and system and developer messages. An unseen message that the client sends too is matched.
   One that it does not send is skipped, and stays.
2. Text is compared with each stretch of whitespace as one space, and none at its ends. Content as a string equals the
   same content as parts. Parts other than text are compared as JSON. The `name` of a message counts.
3. What the assistant says between two messages of users is one text, whatever the number of messages in which it is
   stored or sent: an answer continues after each call, and the client received it as one. Where one of these messages
   ends, the text may lack the whitespace. Unseen messages that the client sends between its words are matched one by
   one. The words beside calls of the client's own functions may be missing, all of them: some clients send calls
   without words, or keep only the last words of an answer.
4. When a background call reports after an answer has ended, the model may say more. No client received those words, so
   the sent history may lack them.
5. An answer that was interrupted or failed may be cut at different places in the stored and the sent history: one text
   may be the beginning of the other, or be missing. A shorter text of a completed answer is an edit. Text that a client
   sends in the place of a missing answer, such as an error message, is appended, unless the same history would not be
   recognised the next time: then it is an edit too.
6. System and developer messages at the head of the sent history are the instruction. If they differ from those at the
   head of the stored history, the instruction has changed.

If every stored message that is seen is matched, the rest of the sent history is **appended**. The rest may be empty:
then only an answer is requested. Otherwise the user has edited, branched, or wants another answer, and the history is
**replaced**: the stored messages are kept up to the first difference, with all that the client never saw, and the sent
messages follow. The old history stays readable as the former era. So a client that edits one message does not lose the
results of functions before it.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, field
from itertools import islice
from typing import Literal

from frameledger_services.gateway.openai import assistant_words, seen_messages
from frameledger_services.gateway.openai.assistant_words import SaidWords
from frameledger_services.gateway.openai.seen_messages import JsonObject, Turn, is_seen, key, text_of

INSTRUCTIONS = ("system", "developer")

MAX_ENDS = 16
"""How many questions are tried as the beginning of what a request repeats: users ask the same again and again."""


@dataclass(frozen=True, slots=True)
class Held:
    """A stored message of the conversation."""

    message: JsonObject
    """In wire form."""

    is_cut: bool = False
    """Whether its answer was interrupted or failed."""

    may_be_left_out: bool = False
    """Whether a call of the client's own functions follows: it may lack that, or the words beside it."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to publish so that the conversation equals the sent one."""

    kind: Literal["append", "replace"]
    messages: tuple[JsonObject, ...]
    """The messages to append, which may be none; or the whole new history."""


def plan(held: Sequence[Held], sent: Sequence[JsonObject]) -> Plan:
    """Returns the plan by which the conversation becomes the sent one, by the rule of this module."""
    return _compared(held, seen_messages.turns(sent)).result()


def is_sent_again(held: Sequence[Held], sent: Sequence[JsonObject], *, has_call: bool) -> bool:
    """Returns whether the sent messages begin as the conversation does: with its first question, and the words that
    answered it. `has_call` says that the client also sends a call of the conversation, which may be all of the answer.
    If the answer never came, or was cut off and the client left it out, what follows the question suffices."""
    comparison = _compared(held, seen_messages.turns(sent))
    matched = {turn.kind for turn in comparison.turns[: comparison.turn]}
    if "user" not in matched:
        return False
    if has_call or "assistant" in matched:
        return True
    return comparison.turn < len(comparison.turns) and comparison.result().kind == "append"


def repeated_end(
    held: Sequence[Held], sent: Sequence[JsonObject], *, made: Set[str]
) -> Sequence[Held] | None:
    """Returns the end of the conversation, with its instruction, that the sent messages repeat, or None.

    An agent that starts each of its runs anew, or whose memory drops old messages, sends a history that begins with a
    later question than the conversation does. All that followed that question has to be in it, the words of an
    assistant or the calls `made` among it. Of several such ends the longest is returned, and no more than `MAX_ENDS`
    are tried."""
    first = next((one for one in sent if one.get("role") not in INSTRUCTIONS), {})
    if first.get("role") != "user":
        return None
    asked = [key(one) for one in sent if one.get("role") == "user"]
    # What follows the question includes no more questions than were sent.
    places = [place for place, one in enumerate(held) if one.message.get("role") == "user"][-len(asked) :]
    keys = [key(held[place].message) for place in places]
    turns = seen_messages.turns(sent)
    begins = (number for number, one in enumerate(keys) if one == asked[0])
    for number in islice(begins, MAX_ENDS):
        if keys[number:] == asked[: len(keys) - number]:
            end = _with_instruction(held, places[number])
            if _repeats(end, turns, made):
                return end
    return None


def _with_instruction(held: Sequence[Held], place: int) -> Sequence[Held]:
    """Returns the messages from this one, behind the instruction of the conversation and what stands directly before
    it, where a client that sends an instruction each time has it."""
    is_instruction = [one.message.get("role") in INSTRUCTIONS for one in held]
    head = next((i for i, one in enumerate(is_instruction) if not one), len(held))
    begin = place
    while begin > head and is_instruction[begin - 1]:
        begin -= 1
    return [*held[:head], *held[begin:]]


def _repeats(end: Sequence[Held], turns: Sequence[Turn], made: Set[str]) -> bool:
    if not made <= {call.get("id") for one in end for call in one.message.get("tool_calls") or ()}:
        return False
    comparison = _compared(end, turns)
    has_words = any(turn.kind == "assistant" for turn in turns[: comparison.turn])
    return bool(made or has_words) and comparison.result().kind == "append"


def has_nothing_in_common(held: Sequence[Held], sent: Sequence[JsonObject]) -> bool:
    """Returns whether the conversation has messages of users, and none of them is among the sent ones."""
    user_messages = {key(one.message) for one in held if one.message.get("role") == "user"}
    return bool(user_messages) and user_messages.isdisjoint(
        key(one) for one in sent if one.get("role") == "user"
    )


def _compared(held: Sequence[Held], turns: Sequence[Turn]) -> _Comparison:
    """Returns the comparison, with the turns matched up to the first that is not held."""
    words = SaidWords((one.message, one.is_cut, one.may_be_left_out) for one in held)
    comparison = _Comparison(held, words, turns)
    comparison.match()
    return comparison


@dataclass(slots=True)
class _Comparison:
    """The comparison from the beginning. `at` and `turn` are its positions in the held messages and in the sent
    turns."""

    held: Sequence[Held]
    said_words: SaidWords
    """Those of the held messages."""

    turns: Sequence[Turn]
    at: int = 0
    turn: int = 0
    kept: int = 0
    """The number of held messages that stay if the history is replaced."""

    tried: int = 0
    """The turn up to which `_alternating` was tried."""

    changed: dict[int, JsonObject | None] = field(default_factory=dict)
    """By index, the client's form of cut messages; None for one that it does not have."""

    head: list[JsonObject] | None = None
    """The instruction, if it has changed."""

    def result(self) -> Plan:
        """Returns the plan, once the turns are matched."""
        rest = [message for turn in self.turns[self.turn :] for message in turn.messages]
        behind = self.said_words.behind_unsent(self.at, is_all=not rest)
        if rest and behind > self.at and not self._is_recognised_with(rest):
            behind = self.at
        if self.head is None and not self._has_seen_behind(behind):
            return Plan("append", tuple(rest))
        begin = 0 if self.head is None else self._end_of_head()
        remaining = (self.changed.get(i, self.held[i].message) for i in range(begin, max(begin, self.kept)))
        return Plan("replace", (*(self.head or ()), *(one for one in remaining if one is not None), *rest))

    def match(self) -> None:
        """Match the turns up to the first that is not held."""
        self._instruction()
        while self.turn < len(self.turns) and self._step():
            self.turn += 1

    def _has_seen_behind(self, place: int) -> bool:
        return any(is_seen(one.message) for one in self.held[place:])

    def _is_recognised_with(self, rest: Sequence[JsonObject]) -> bool:
        """Returns whether the same history would match completely if it was sent again after the rest was appended."""
        later = _compared([*self.held, *map(Held, rest)], self.turns)
        return later.turn == len(later.turns) and not later._has_seen_behind(later.at)

    def _instruction(self) -> None:
        if not self.held:
            return
        instructions: list[Turn] = []
        for turn in self.turns:
            if turn.kind != "other" or turn.messages[0].get("role") not in INSTRUCTIONS:
                break
            instructions.append(turn)
        self.turn = len(instructions)
        self.at = self.kept = end = self._end_of_head()
        there = iter([key(one.message) for one in self.held[:end]])
        if any(turn.key not in there for turn in instructions):
            self.head = [turn.messages[0] for turn in instructions]

    def _end_of_head(self) -> int:
        """Returns the index of the first held message that is not part of the instruction."""
        roles = (one.message.get("role") for one in self.held)
        return next((place for place, role in enumerate(roles) if role not in INSTRUCTIONS), len(self.held))

    def _step(self) -> bool:
        """Match the next turn. Returns whether it is held."""
        turn = self.turns[self.turn]
        if turn.kind != "user" and self.turn >= self.tried and self._alternating():
            return True
        if turn.kind == "assistant":
            return self._words(turn.messages)
        place = self._find(turn)
        if place is None:
            return False
        self.changed |= dict.fromkeys(self.said_words.cut_places(self.at, place))
        self.at = self.kept = place + 1
        return True

    def _find(self, turn: Turn) -> int | None:
        """Returns the index of the held message that was sent, or None if it is not held, or if a message that the
        client should have sent comes before it."""
        behind = self.said_words.behind_unsent(self.at)
        for place in range(self.at, len(self.held)):
            message = self.held[place].message
            if key(message) == turn.key:
                return place
            if is_seen(message) and place >= behind:
                return None
        return None

    def _alternating(self) -> bool:
        """Match the turns before the next user's in which words and unseen messages alternate: the words as one text,
        each unseen message by itself. Returns whether they are held; `turn` is then the last of them."""
        users = (i for i in range(self.turn, len(self.turns)) if self.turns[i].kind == "user")
        self.tried = next(users, len(self.turns))
        behind = self._unseen_places()
        turns = self.turns[self.turn : self.turn + len(behind)]
        for count in (len(turns), self._as_long_as_held(turns)):
            words = [turn for turn in turns[:count] if turn.kind == "assistant"]
            if 0 < len(words) < count and self._words(
                [message for turn in words for message in turn.messages], behind[count - 1]
            ):
                self.turn += count - 1
                return True
        return False

    def _unseen_places(self) -> list[int]:
        """Returns, for each turn before the next user's, the index after the unseen messages that were matched up to
        it. Ends before the first unseen message that is not held."""
        end = next((i for i in range(self.at, len(self.held)) if self._is_user(i)), len(self.held))
        keys = {place: key(self.held[place].message) for place in range(self.at, end)}
        places: list[int] = []
        behind = self.at
        for turn in self.turns[self.turn : self.tried]:
            if turn.kind == "other":
                place = next((i for i in range(behind, end) if keys[i] == turn.key), None)
                if place is None:
                    break
                behind = place + 1
            places.append(behind)
        return places

    def _as_long_as_held(self, turns: Sequence[Turn]) -> int:
        """Returns how many of the turns together have as many characters of words as the held messages, or 0 if no
        number of them has."""
        left = len(" ".join(one.text for one in self.said_words.region(self.at))) + 1
        for number, turn in enumerate(turns):
            if turn.kind == "assistant":
                if left <= 0:
                    return number if left == 0 else 0
                left -= turn.length + 1
        return 0

    def _is_user(self, place: int) -> bool:
        return self.held[place].message.get("role") == "user"

    def _words(self, sent: Sequence[JsonObject], behind: int = 0) -> bool:
        """Match words of the assistant with those that are held before the next user's message. Returns whether they
        are the same. Held messages before the index `behind` count as matched too."""
        words = self.said_words.region(self.at)
        cuts = assistant_words.cuts(words, "\n".join(text_of(one) for one in sent)) if words else None
        if cuts is None:
            return False
        for place, text in cuts.items():
            self.changed[place] = None if text is None else {**self.held[place].message, "content": text}
        self.at = max(words[-1].place + 1, behind)
        # What functions and operators added after an answer comes before the next message.
        visible = (place for place in range(self.at, len(self.held)) if is_seen(self.held[place].message))
        self.kept = next(visible, len(self.held))
        return True
