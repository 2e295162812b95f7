-- All calls of an announcement may be dispatched at one version: the claim of each is found without looking through those
-- of the others. It takes the place of the index without the call.
CREATE INDEX claims_by_work ON claims (context_id, version, tool_call_id);

DROP INDEX claims_of_context;
