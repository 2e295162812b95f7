"""Response aggregators: classes with Pipecat's old names, for programs that keep a conversation in memory, over
`evolve`.

Each takes frames one by one and returns the frames that follow from them, by the rules of the log (`events/rules.md`).
Each conversation has one writer; any thread may read the returned values.

`on_context_updated` of a result is not called here, since nothing is awaited: the caller calls it after
`process_frame`. Services call it for the frames that they fold.
"""

from frameledger.aggregators.contexts import (
    LLMAssistantContextAggregator,
    LLMContextAggregator,
    LLMContextAggregatorPair,
    LLMUserContextAggregator,
)
from frameledger.aggregators.responses import (
    LLMAssistantResponseAggregator,
    LLMFullResponseAggregator,
    LLMResponseAggregator,
    LLMUserResponseAggregator,
)

__all__ = [
    "LLMAssistantContextAggregator",
    "LLMAssistantResponseAggregator",
    "LLMContextAggregator",
    "LLMContextAggregatorPair",
    "LLMFullResponseAggregator",
    "LLMResponseAggregator",
    "LLMUserContextAggregator",
    "LLMUserResponseAggregator",
]
