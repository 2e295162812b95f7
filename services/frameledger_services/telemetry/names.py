"""Every name that our spans have: of the spans themselves, and of their attributes.

The standard ones are OpenTelemetry's semantic conventions, at the revisions below. Those for models are in development
and are renamed now and then: this is the one place to follow them in. Ours begin with `frameledger.`.
"""

from __future__ import annotations

from typing import Final

CONVENTIONS: Final = "1.44.0"
"""The release of `open-telemetry/semantic-conventions` for messaging, errors and servers."""

# The `gen_ai` names are those of `open-telemetry/semantic-conventions-genai` at commit
# 024a4f944a1291fcb627c9c47da69e79868dd15e; that repository has no releases yet.

# Spans. Those of messaging and of models end with what they are about: a topic, a model, a function.
SEND: Final = "send"
PROCESS: Final = "process"
CHAT: Final = "chat"
EXECUTE_TOOL: Final = "execute_tool"
SETTLE_CALL: Final = "settle_call"
"""Ours: somebody answers a call that waits, or says what became of an ambiguous one."""

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
"""The conversation once more: Langfuse, and what follows OpenInference, group by it."""

CONTEXT_VERSION: Final = "frameledger.context.version"
"""Of the conversation: what the model was given, or what dispatched the call."""

BATCH_APPLIED: Final = "frameledger.batch.applied"
BATCH_IGNORED: Final = "frameledger.batch.ignored"
RUN_ID: Final = "frameledger.run.id"
RUN_ATTEMPT: Final = "frameledger.run.attempt"
RUN_TRIGGER: Final = "frameledger.run.trigger"
"""The type of the frame that asked for the run first."""

CALL_ATTEMPT: Final = "frameledger.call.attempt"
CALL_SETTLED_AS: Final = "frameledger.call.settled_as"
"""How the call ended without a result of its function."""

WORKER_ID: Final = "frameledger.worker.id"
QUEUE_SECONDS: Final = "frameledger.queue_seconds"
"""From when the log had asked for it until a worker claimed it."""

CLAIM_ENDING: Final = "frameledger.claim.ending"
"""What became of the claim: done, over, given_up, release, untried."""

INTERRUPTED: Final = "frameledger.interrupted"
"""The user cut in, and that is no error."""

REQUEST_SHA256: Final = "frameledger.request.sha256"
"""Of the bytes that were sent to the model, as the start frame has it."""
