CREATE OR REPLACE FUNCTION context_diff(context_id text, a bigint, b bigint) RETURNS json
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    WITH changed AS (
        SELECT
            coalesce(before.era, after.era) AS era,
            coalesce(before.position, after.position) AS position,
            before.message AS before,
            after.message AS after
        FROM messages_at(context_diff.context_id, context_diff.a) AS before
        FULL JOIN messages_at(context_diff.context_id, context_diff.b) AS after
            ON after.era = before.era AND after.position = before.position
        -- A message that did not change is the same row at both versions.
        WHERE before.valid_from IS DISTINCT FROM after.valid_from
    ),
    removed AS (
        SELECT json_build_object('era', era, 'position', position, 'message', before) AS entry
        FROM changed
        WHERE after IS NULL
        ORDER BY era, position
    ),
    added AS (
        SELECT json_build_object('era', era, 'position', position, 'message', after) AS entry
        FROM changed
        WHERE before IS NULL
        ORDER BY era, position
    ),
    replaced AS (
        SELECT json_build_object('era', era, 'position', position, 'before', before, 'after', after) AS entry
        FROM changed
        WHERE before IS NOT NULL AND after IS NOT NULL
        ORDER BY era, position
    ),
    terms AS (
        SELECT
            known.name,
            coalesce(setting_at(context_diff.context_id, known.name, context_diff.a), known.unset) AS before,
            coalesce(setting_at(context_diff.context_id, known.name, context_diff.b), known.unset) AS after
        FROM (
            -- Null as a value, too: what is set to null again does not differ from what was never set.
            VALUES ('tools', '[]'::json), ('tool_choice', 'null'), ('settings', '{}'), ('prompt_caching', 'null'),
                ('skip_tts', 'null'), ('limits', '{}'), ('mirror', 'null'), ('recording', 'false')
        ) AS known (name, unset)
    )
    SELECT json_build_object(
        'from', context_diff.a,
        'to', context_diff.b,
        'removed', (SELECT coalesce(json_agg(removed.entry), '[]') FROM removed),
        'added', (SELECT coalesce(json_agg(added.entry), '[]') FROM added),
        'replaced', (SELECT coalesce(json_agg(replaced.entry), '[]') FROM replaced),
        'terms', (
            SELECT coalesce(
                json_object_agg(terms.name, json_build_object('before', terms.before, 'after', terms.after)), '{}'
            )
            FROM terms
            WHERE terms.before::text IS DISTINCT FROM terms.after::text
        )
    )
    FROM contexts
    WHERE contexts.context_id = context_diff.context_id
        AND context_diff.a BETWEEN 0 AND contexts.version
        AND context_diff.b BETWEEN 0 AND contexts.version
        -- As context_at(): a version before an erasure does not exist any more.
        AND NOT EXISTS (
            SELECT FROM unnest(ARRAY[context_diff.a, context_diff.b]) AS asked (version)
            WHERE asked.version > 0 AND asked.version < (
                SELECT min(frames.version) - 1 FROM frames WHERE frames.context_id = context_diff.context_id
            )
        );
END;

COMMENT ON FUNCTION context_diff(text, bigint, bigint) IS
    'Returns what changed in a context from version a to version b; either may be the later one. A JSON object with the '
    'messages removed, added and replaced, by era and position, and with every term that differs, before and after: '
    'tools, tool_choice, settings, prompt_caching, skip_tts, limits, mirror and recording. Null if the context does not '
    'have one of the versions, or if one was erased.';
