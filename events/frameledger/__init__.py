"""The core of Frameledger: the frames of a conversation, and what each of them does to its context.

    from frameledger.fold import Conversation, fold
    from frameledger.frames import LLMMessagesAppendFrame

    said = LLMMessagesAppendFrame(messages=[{"role": "user", "content": "Hello"}], run_llm=True)
    conversation = fold([said], onto=Conversation.new("ctx-1"))
    conversation.context.get_messages()

Pure: no clock, no randomness, no IO. `events/rules.md` states the rules, `events/frames.md` lists the frames.
"""
