"""Real conversations fold to their real messages."""

import importlib.util
import json

import pytest
from tests.conftest import SHARED, needs_shared

from frameledger.fold import Conversation, fold
from frameledger.frames import encode_frame
from frameledger.record import decode

DATA = SHARED / "data" / "real-conversations.jsonl"
CONVERSATIONS = [json.loads(line) for line in DATA.read_bytes().splitlines()] if DATA.exists() else []


@pytest.fixture(scope="module")
def canon(shared):
    """The canonical form in which messages are compared, as the shared material defines it."""
    spec = importlib.util.spec_from_file_location("canon", shared / "conformance" / "canon.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@needs_shared
def test_there_are_real_conversations_to_fold():
    assert len(CONVERSATIONS) > 0
    assert all(one["frames"] and one["messages"] for one in CONVERSATIONS)


@pytest.mark.parametrize("conversation", CONVERSATIONS, ids=[one["name"] for one in CONVERSATIONS])
def test_a_real_conversation_folds_to_its_messages(conversation, canon):
    frames = [decode(encode_frame(decode(json.dumps(frame).encode()))) for frame in conversation["frames"]]
    folded = fold(frames, Conversation.new(conversation["name"]))
    assert [canon.message(message) for message in folded.messages] == conversation["messages"]
