"""A client's resent history, message by message, by the rule in `gateway/openai/history`."""

import pytest

from frameledger import async_tool_messages as background
from frameledger_services.gateway.openai import history
from frameledger_services.gateway.openai.history import Held, Plan


def user(content, **more):
    return {"role": "user", "content": content, **more}


def said(content):
    return {"role": "assistant", "content": content}


def system(content):
    return {"role": "system", "content": content}


def developer(content):
    return {"role": "developer", "content": content}


def cut(content):
    return Held(said(content), is_cut=True)


def beside(content):
    """Words of the model beside a call of the client's own functions."""
    return Held(said(content), may_be_left_out=True)


CALL = {
    "role": "assistant",
    "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "trains", "arguments": "{}"}}],
}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": '{"late":25}'}
CALL_2 = {
    "role": "assistant",
    "tool_calls": [{"id": "c2", "type": "function", "function": {"name": "hold", "arguments": "{}"}}],
}
RESULT_2 = {"role": "tool", "tool_call_id": "c2", "content": '"held"'}
THOUGHT = {"llm": "anthropic", "message": {"type": "thought", "text": "Hm.", "signature": "c2ln"}}
REPORT = background.build_final_result_message("c2", '"held"')
PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}

HI, HELLO, MORE = user("Hi"), said("Hello."), user("More?")


def held(*messages):
    return [one if isinstance(one, Held) else Held(one) for one in messages]


APPENDED = {
    "nothing is held yet": ([], [HI], [HI]),
    "what is held is sent as it is": ([HI, HELLO], [HI, HELLO, MORE], [MORE]),
    "several messages follow": (
        [HI, HELLO],
        [HI, HELLO, MORE, developer("Quickly.")],
        [MORE, developer("Quickly.")],
    ),
    "the question is held and has no answer": ([HI], [HI], []),
    "calls and results are in between": ([HI, CALL, RESULT, HELLO], [HI, HELLO, MORE], [MORE]),
    "thoughts are in between": ([HI, THOUGHT, HELLO], [HI, HELLO, MORE], [MORE]),
    "words before a call and behind it are one answer": (
        [HI, said("I look."), CALL, RESULT, said("It is late.")],
        [HI, said("I look.\n\nIt is late."), MORE],
        [MORE],
    ),
    "an answer in two messages": (
        [HI, said("I look.\n\nIt is late.")],
        [HI, said("I look."), said("It is late."), MORE],
        [MORE],
    ),
    "whitespace is another": ([HI, said("One\n\n  two ")], [user(" Hi\n"), said("One two"), MORE], [MORE]),
    "text as parts": (
        [user([{"type": "text", "text": "Hi"}]), HELLO],
        [HI, said([{"type": "text", "text": "Hello."}]), MORE],
        [MORE],
    ),
    "a picture": (
        [user([{"type": "text", "text": "See"}, PICTURE]), HELLO],
        [user([{"type": "text", "text": "See"}, dict(PICTURE)]), HELLO, MORE],
        [MORE],
    ),
    "the instruction is sent each time": (
        [system("Be brief."), HI, HELLO],
        [system("Be brief."), HI, HELLO, MORE],
        [MORE],
    ),
    "an instruction that the client does not know": (
        [system("Be brief."), HI, HELLO],
        [HI, HELLO, MORE],
        [MORE],
    ),
    "an instruction of an operator beside the client's": (
        [system("Be brief."), developer("Sell nothing."), HI, HELLO],
        [system("Be brief."), HI, HELLO, MORE],
        [MORE],
    ),
    "a note of an operator in between": ([HI, HELLO, developer("She is angry.")], [HI, HELLO, MORE], [MORE]),
    "a note that the client sent itself": (
        [HI, HELLO, developer("Quickly."), MORE, said("Yes.")],
        [HI, HELLO, developer("Quickly."), MORE, said("Yes."), HI],
        [HI],
    ),
    "a background call has reported since": (
        [HI, said("I ask."), REPORT, said("They hold it.")],
        [HI, said("I ask."), MORE],
        [MORE],
    ),
    "it reported while the client listened": (
        [HI, said("I ask."), REPORT, said("They hold it.")],
        [HI, said("I ask.\n\nThey hold it."), MORE],
        [MORE],
    ),
    "a call that was cancelled behind the question": ([HI, CALL, RESULT], [HI], []),
    "an interrupted answer of which the client has less": (
        [HI, cut("One two three")],
        [HI, said("One two"), MORE],
        [MORE],
    ),
    "within a word": ([HI, cut("One two three")], [HI, said("One tw"), MORE], [MORE]),
    "an interrupted answer of which the client has more": (
        [HI, cut("One two")],
        [HI, said("One two three"), MORE],
        [MORE],
    ),
    "an interrupted answer of which the client has nothing": ([HI, cut("One")], [HI, MORE], [MORE]),
    "a placeholder of it": ([HI, cut("One")], [HI, said(""), MORE], [MORE]),
    "a placeholder where nothing was said": ([HI], [HI, said(None), MORE], [MORE]),
    "interrupted behind a call": (
        [HI, said("I look."), CALL, RESULT, cut("It is la")],
        [HI, said("I look.\n\nIt is"), MORE],
        [MORE],
    ),
    "an interrupted answer long ago": (
        [HI, cut("One two"), MORE, said("Yes.")],
        [HI, said("One"), MORE, said("Yes."), HI],
        [HI],
    ),
    "calls that the client made elsewhere": (
        [HI, CALL, RESULT, HELLO],
        [HI, CALL, RESULT, HELLO, MORE],
        [MORE],
    ),
    "words and calls alternate": (
        [HI, said("I look."), CALL, RESULT, said("It is late.")],
        [HI, said("I look."), CALL, RESULT, said("It is late."), MORE],
        [MORE],
    ),
    "calls and words alternate, and nothing is new": (
        [HI, CALL, RESULT, said("Late."), CALL_2, RESULT_2, said("Held.")],
        [HI, CALL, RESULT, said("Late."), CALL_2, RESULT_2, said("Held.")],
        [],
    ),
    "a second call is new": (
        [HI, said("I look."), CALL, RESULT, said("Late.")],
        [HI, said("I look."), CALL, RESULT, said("Late."), CALL_2, RESULT_2],
        [CALL_2, RESULT_2],
    ),
    "words behind a second call are new": (
        [HI, said("I look."), CALL, RESULT, said("Late."), CALL_2, RESULT_2],
        [HI, said("I look."), CALL, RESULT, said("Late."), CALL_2, RESULT_2, said("Held."), MORE],
        [said("Held."), MORE],
    ),
    "words and calls alternate in an interrupted answer": (
        [HI, said("I look."), CALL, RESULT, cut("It is late")],
        [HI, said("I look."), CALL, RESULT, said("It is"), MORE],
        [MORE],
    ),
    "it ends with words of the assistant": ([HI, HELLO], [HI, HELLO], []),
}

REPLACED = {
    "words are edited between which a call stands": (
        [HI, said("I look."), CALL, RESULT, said("It is late.")],
        [HI, said("I see."), CALL, RESULT, said("It is late."), MORE],
        [HI, said("I see."), CALL, RESULT, said("It is late."), MORE],
    ),
    "the question is edited": ([HI, HELLO], [user("Hey")], [user("Hey")]),
    "a later question is edited": (
        [HI, HELLO, MORE, said("Yes.")],
        [HI, HELLO, user("Less?")],
        [HI, HELLO, user("Less?")],
    ),
    "what functions said before it stays": (
        [HI, CALL, RESULT, HELLO, MORE, said("Yes.")],
        [HI, HELLO, user("Less?")],
        [HI, CALL, RESULT, HELLO, user("Less?")],
    ),
    "and what operators did": (
        [HI, HELLO, developer("Note."), MORE, said("Yes.")],
        [HI, HELLO, user("Less?")],
        [HI, HELLO, developer("Note."), user("Less?")],
    ),
    "another answer is wanted": ([HI, CALL, RESULT, HELLO], [HI], [HI]),
    "another answer to an interrupted one": ([HI, cut("Hel")], [HI], [HI]),
    "an answer is edited": ([HI, HELLO], [HI, said("Bye."), MORE], [HI, said("Bye."), MORE]),
    "an answer is shortened": ([HI, said("One two")], [HI, said("One"), MORE], [HI, said("One"), MORE]),
    "an answer is made longer": ([HI, said("One")], [HI, said("One two"), MORE], [HI, said("One two"), MORE]),
    "an answer is left out": (
        [HI, HELLO, MORE, said("Yes.")],
        [HI, MORE, said("Yes."), HI],
        [HI, MORE, said("Yes."), HI],
    ),
    "the instruction is another": (
        [system("Be brief."), HI, CALL, RESULT, HELLO],
        [system("Be long."), HI, HELLO, MORE],
        [system("Be long."), HI, CALL, RESULT, HELLO, MORE],
    ),
    "there is an instruction now": (
        [HI, HELLO],
        [system("Be brief."), HI, HELLO, MORE],
        [system("Be brief."), HI, HELLO, MORE],
    ),
    "another picture": (
        [user([PICTURE]), HELLO],
        [user([{"type": "image_url", "image_url": {"url": "data:image/png;base64,BBBB"}}]), HELLO, MORE],
        [user([{"type": "image_url", "image_url": {"url": "data:image/png;base64,BBBB"}}]), HELLO, MORE],
    ),
    "somebody else's name": (
        [user("Hi", name="ann"), HELLO],
        [user("Hi", name="bob"), HELLO, MORE],
        [user("Hi", name="bob"), HELLO, MORE],
    ),
    "words that differ by their spaces within": (
        [user("no where"), HELLO],
        [user("nowhere"), HELLO, MORE],
        [user("nowhere"), HELLO, MORE],
    ),
    "somebody else has asked since": (
        [HI, HELLO, user("Other?"), said("No.")],
        [HI, HELLO, MORE],
        [HI, HELLO, MORE],
    ),
    "a cut answer is as the client has it": (
        [HI, cut("One two\nthree"), MORE, said("Yes.")],
        [HI, said("One  two"), user("Less?")],
        [HI, said("One  two"), user("Less?")],
    ),
    "a cut answer that the client dropped": (
        [HI, cut("One"), MORE, said("Yes.")],
        [HI, MORE, user("Less?")],
        [HI, MORE, user("Less?")],
    ),
    "a window of the history": (
        [HI, HELLO, MORE, said("Yes.")],
        [MORE, said("Yes."), HI],
        [MORE, said("Yes."), HI],
    ),
}


@pytest.mark.parametrize("case", APPENDED)
def test_what_the_conversation_does_not_have_is_appended(case):
    stored, sent, rest = APPENDED[case]
    assert history.plan(held(*stored), sent) == Plan("append", tuple(rest))


@pytest.mark.regression("gateway 89")
def test_words_of_a_client_behind_a_report_that_it_does_not_have_are_recognised():
    stored = held(HI, said("I ask."), REPORT, said("They hold it."), said("Hm."), said("Well."))
    sent = [HI, said("I ask."), said("Hm."), said("Well."), MORE]
    assert history.plan(stored, sent) == Plan("append", (MORE,))


@pytest.mark.parametrize("case", REPLACED)
def test_another_history_takes_the_place_of_the_old_one_as_far_as_it_differs(case):
    stored, sent, whole = REPLACED[case]
    assert history.plan(held(*stored), sent) == Plan("replace", tuple(whole))


LOOKED = [HI, beside("I look."), CALL, RESULT]


@pytest.mark.regression("gateway 134")
@pytest.mark.parametrize(
    ("stored", "sent", "rest"),
    [
        # As Semantic Kernel sends a call: without the words beside it. The calls are compared elsewhere.
        (LOOKED, [HI], []),
        ([*LOOKED, said("Late.")], [HI, said("Late."), MORE], [MORE]),
        ([*LOOKED, beside("I hold."), CALL_2, RESULT_2], [HI], []),
        ([*LOOKED, said("Late."), MORE, *LOOKED[1:]], [HI, said("Late."), MORE], []),
        ([*LOOKED, cut("La")], [HI, MORE], [MORE]),
        # Its streams end with a message of all words of the answer.
        ([*LOOKED, said("Late.")], [HI, said("I look.Late."), MORE], [MORE]),
        ([*LOOKED, cut("It is late")], [HI, said("I look.It is"), MORE], [MORE]),
        ([*LOOKED, said("I look. Late.")], [HI, said("I look. Late."), MORE], [MORE]),
        # Most clients send them as they came.
        ([*LOOKED, said("Late.")], [HI, said("I look."), said("Late."), MORE], [MORE]),
    ],
)
def test_words_beside_a_call_of_the_client_may_be_left_out(stored, sent, rest):
    assert history.plan(held(*stored), sent) == Plan("append", tuple(rest))


@pytest.mark.regression("gateway 134")
@pytest.mark.parametrize(
    ("stored", "sent", "whole"),
    [
        ([*LOOKED, said("Late.")], [HI], [HI]),
        ([*LOOKED, said("Late.")], [HI, said("I look."), MORE], [HI, said("I look."), MORE]),
        ([*LOOKED, said("Late.")], [HI, said("Early."), MORE], [HI, said("Early."), MORE]),
        ([*LOOKED, cut("La")], [HI], [HI]),
    ],
)
def test_a_client_that_leaves_out_other_words_has_edited_the_history(stored, sent, whole):
    assert history.plan(held(*stored), sent) == Plan("replace", tuple(whole))


@pytest.mark.regression("gateway 108")
def test_what_a_client_says_in_the_place_of_a_missing_answer_is_recognised_when_it_comes_again():
    sorry, one = said("It failed."), said("Held. I ask.")
    # Behind the report the appended words would be taken for those that the client does not have.
    stored = held(HI, cut("I ask."), REPORT, said("Held."))
    assert history.plan(stored, [HI, one, MORE]) == Plan("replace", (HI, one, MORE))
    assert history.plan(held(HI, one, MORE), [HI, one, MORE]) == Plan("append", ())
    # What functions said stays where the words can be appended.
    stored = held(HI, CALL, RESULT, cut("Hel"))
    assert history.plan(stored, [HI, sorry, MORE]) == Plan("append", (sorry, MORE))
    assert history.plan([*stored, *held(sorry, MORE)], [HI, sorry, MORE]) == Plan("append", ())


@pytest.mark.regression("gateway 120")
@pytest.mark.parametrize(
    ("stored", "sent", "has_call", "again"),
    [
        ([HI, HELLO], [HI, HELLO, MORE], False, True),
        ([HI, HELLO, MORE, said("Yes.")], [HI, HELLO, user("Edited")], False, True),
        ([system("Be brief."), HI, HELLO], [HI, HELLO, MORE], False, True),
        ([HI, CALL, RESULT], [HI], True, True),
        ([HI], [HI, MORE], False, True),
        ([HI, cut("Hel")], [HI, MORE], False, True),
        ([HI, cut("Hel")], [HI], False, False),
        # What is new may be the same words again, and what an assistant says may be new.
        ([HI, HELLO], [HI], False, False),
        ([HI, HELLO], [HI, MORE], False, False),
        ([HI, HELLO], [HELLO, MORE], False, False),
        ([HI, HELLO], [MORE, said("Yes."), MORE], False, False),
        ([HI, HELLO], [HI, said("Yes."), MORE], False, False),
        ([HI, CALL, RESULT], [], True, False),
        ([HI, CALL, RESULT], [MORE], True, False),
        ([], [HI, HELLO, MORE], False, False),
    ],
)
def test_what_begins_with_the_first_question_and_what_was_answered_is_sent_again(
    stored, sent, has_call, again
):
    assert history.is_sent_again(held(*stored), sent, has_call=has_call) is again


@pytest.mark.regression("gateway 129")
@pytest.mark.parametrize(
    ("stored", "sent", "made", "part"),
    [
        # A run of an agent that starts with its own question, and then sends the call that answered it.
        ([HI, HELLO, MORE, CALL, RESULT], [MORE], {"c1"}, [MORE, CALL, RESULT]),
        ([HI, HELLO, HI, CALL, RESULT], [HI], {"c1"}, [HI, CALL, RESULT]),
        (
            [HI, HELLO, MORE, said("I look."), CALL],
            [MORE, said("I look.")],
            {"c1"},
            [MORE, said("I look."), CALL],
        ),
        # The instruction stands at the head, or in front of the question.
        ([system("A."), HI, HELLO, MORE, CALL], [system("A."), MORE], {"c1"}, [system("A."), MORE, CALL]),
        ([HI, HELLO, system("A."), MORE, CALL], [system("A."), MORE], {"c1"}, [system("A."), MORE, CALL]),
        # A history from which old messages were dropped: as much of the conversation as it has.
        ([HI, HELLO, MORE, said("Yes.")], [MORE, said("Yes."), HI], set(), [MORE, said("Yes.")]),
        ([HI, *[MORE, said("Yes.")] * 3], [*[MORE, said("Yes.")] * 2, HI], set(), [MORE, said("Yes.")] * 2),
        # Other calls, an edit, or only new messages.
        ([HI, CALL, RESULT, MORE, CALL_2, RESULT_2], [MORE], {"c1"}, None),
        ([HI, HELLO, MORE, CALL, RESULT], [user("Edited")], {"c1"}, None),
        ([HI, HELLO, MORE, said("Yes.")], [MORE, said("No."), HI], set(), None),
        ([HI, HELLO, MORE, said("Yes.")], [MORE], set(), None),
        ([HI, HELLO, MORE, said("Yes.")], [said("Yes."), HI], set(), None),
        ([HI, HELLO, MORE, CALL, RESULT], [], {"c1"}, None),
        ([], [HI, HELLO, MORE], set(), None),
    ],
)
def test_a_history_without_its_beginning_repeats_the_end_of_the_conversation(stored, sent, made, part):
    found = history.repeated_end(held(*stored), sent, made=made)
    assert (None if found is None else [one.message for one in found]) == part


@pytest.mark.parametrize(
    ("stored", "sent", "nothing"),
    [
        ([], [HI], False),
        ([HI, HELLO], [user("### Task: a title")], True),
        ([HI, HELLO], [user("Edited"), said("Yes."), MORE], True),
        ([HI, HELLO, MORE], [MORE], False),
        ([system("Be brief.")], [HI], False),
        ([HI], [system("Be brief."), user("Hey")], True),
    ],
)
def test_nothing_in_common_is_no_word_of_a_user(stored, sent, nothing):
    assert history.has_nothing_in_common(held(*stored), sent) is nothing


@pytest.mark.regression("gateway 6")
@pytest.mark.parametrize("role", [["user"], {"a": 1}, None, 5])
def test_a_message_of_any_role_may_be_stored(role):
    """Programs append what they like; who asks behind it is answered."""
    held = [Held({"role": role, "content": "hm"}), Held(user("Hi."))]
    assert history.plan(held, [user("Hi."), user("More.")]) == Plan("append", (user("More."),))
