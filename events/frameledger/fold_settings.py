"""The keys of a conversation's settings that the fold reads. They are not part of a request to a model."""

from __future__ import annotations

from typing import Final

ADD_TOOL_CHANGE_MESSAGES: Final = "add_tool_change_messages"
"""True: a change of the tools is announced in the conversation (RA5.tools)."""

ANSWERED_ELSEWHERE: Final = "answered_elsewhere"
"""True: another program runs the model, and no run opens here (R4.5)."""

SECOND_INPUT: Final = "second_input"
"""What an input that arrives while a run is open does, if its own field does not decide it (R7.1)."""

FOLD_SETTINGS: Final = frozenset({ADD_TOOL_CHANGE_MESSAGES, ANSWERED_ELSEWHERE, SECOND_INPUT})
"""All of them."""
