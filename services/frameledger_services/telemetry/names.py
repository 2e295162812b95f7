"""The names of spans and of their attributes.

Standard names follow OpenTelemetry's semantic conventions at the revisions below. The conventions for models are in
development and sometimes renamed; only this module has to follow. Frameledger's own names start with `frameledger.`.
"""

from __future__ import annotations

from typing import Final

CONVENTIONS: Final = "1.44.0"
"""The release of `open-telemetry/semantic-conventions` for messaging, errors and servers."""

# The `gen_ai` names are those of `open-telemetry/semantic-conventions-genai` at commit
# 024a4f944a1291fcb627c9c47da69e79868dd15e; that repository has no releases yet.

# Span names. Those of messaging and models are followed by a topic, a model or a function.
SEND: Final = "send"
PROCESS: Final = "process"
CHAT: Final = "chat"
EXECUTE_TOOL: Final = "execute_tool"
SETTLE_CALL: Final = "settle_call"
"""Frameledger's own: a waiting call is answered, or an ambiguous call is settled."""

ERROR_TYPE: Final = "error.type"
SERVER_ADDRESS: Final = "server.address"
SERVER_PORT: Final = "server.port"

MESSAGING_SYSTEM: Final = "messaging.system"
MESSAGING_OPERATION_NAME: Final = "messaging.operation.name"
MESSAGING_OPERATION_TYPE: Final = "messaging.operation.type"
MESSAGING_DESTINATION_NAME: Final = "messaging.destination.name"
MESSAGING_DESTINATION_PARTITION_ID: Final = "messaging.destination.partition.id"
MESSAGING_BATCH_MESSAGE_COUNT: Final = "messaging.batch.message_count"
MESSAGING_CONSUMER_GROUP_NAME: Final = "messaging.consumer.group.name"
MESSAGING_KAFKA_OFFSET: Final = "messaging.kafka.offset"

GEN_AI_OPERATION_NAME: Final = "gen_ai.operation.name"
GEN_AI_CONVERSATION_ID: Final = "gen_ai.conversation.id"
GEN_AI_PROVIDER_NAME: Final = "gen_ai.provider.name"
GEN_AI_REQUEST_MODEL: Final = "gen_ai.request.model"
GEN_AI_REQUEST_STREAM: Final = "gen_ai.request.stream"
GEN_AI_REQUEST_TEMPERATURE: Final = "gen_ai.request.temperature"
GEN_AI_REQUEST_MAX_TOKENS: Final = "gen_ai.request.max_tokens"
GEN_AI_RESPONSE_FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
GEN_AI_RESPONSE_TIME_TO_FIRST_CHUNK: Final = "gen_ai.response.time_to_first_chunk"
GEN_AI_USAGE_INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
GEN_AI_USAGE_OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
GEN_AI_USAGE_CACHE_READ_INPUT_TOKENS: Final = "gen_ai.usage.cache_read.input_tokens"
GEN_AI_USAGE_CACHE_WRITE_INPUT_TOKENS: Final = "gen_ai.usage.cache_write.input_tokens"
GEN_AI_USAGE_REASONING_OUTPUT_TOKENS: Final = "gen_ai.usage.reasoning.output_tokens"
GEN_AI_TOOL_NAME: Final = "gen_ai.tool.name"
GEN_AI_TOOL_TYPE: Final = "gen_ai.tool.type"
GEN_AI_TOOL_CALL_ID: Final = "gen_ai.tool.call.id"

SESSION_ID: Final = "session.id"
"""The conversation id again: Langfuse and OpenInference tools group by it."""

CONTEXT_VERSION: Final = "frameledger.context.version"
"""The version of the conversation that the model was given, or that dispatched the call."""

BATCH_APPLIED: Final = "frameledger.batch.applied"
BATCH_IGNORED: Final = "frameledger.batch.ignored"
RUN_ID: Final = "frameledger.run.id"
RUN_ATTEMPT: Final = "frameledger.run.attempt"
RUN_TRIGGER: Final = "frameledger.run.trigger"
"""The type of the frame that triggered the run."""

CALL_ATTEMPT: Final = "frameledger.call.attempt"
CALL_SETTLED_AS: Final = "frameledger.call.settled_as"
"""How the call was settled if its function returned no result."""

WORKER_ID: Final = "frameledger.worker.id"
QUEUE_SECONDS: Final = "frameledger.queue_seconds"
"""Seconds from the request on the log until a worker claimed it."""

CLAIM_ENDING: Final = "frameledger.claim.ending"
"""How the claim ended: done, over, given_up, release, untried."""

INTERRUPTED: Final = "frameledger.interrupted"
"""True if the user interrupted; this is not an error."""

REQUEST_SHA256: Final = "frameledger.request.sha256"
"""The hash of the request that was sent to the model, as in the start frame."""
