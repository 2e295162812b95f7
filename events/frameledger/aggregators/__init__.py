"""Response aggregators: the old class names for programs in memory, thin holders of a context over `evolve`.

Each takes frames one by one and returns the frames that they give rise to. The rules are those of the log
(`events/rules.md`); there is no second set. One writer for each conversation; what is shown are values, which any
thread may read.

The `on_context_updated` of a result is not called here, where nothing is awaited: whoever hands in the result calls it
when `process_frame` has returned. The services do so for what they fold.
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
