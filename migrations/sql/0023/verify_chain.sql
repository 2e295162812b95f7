CREATE OR REPLACE FUNCTION verify_chain(
    context_id text,
    expected_version bigint DEFAULT NULL,
    expected_chain bytea DEFAULT NULL,
    OUT intact boolean,
    OUT frame_count bigint,
    OUT broken_at bigint,
    OUT problem text
)
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    WITH beginning AS (
        -- After erase() the chain goes on from the receipt.
        SELECT receipt.version, receipt.chain
        FROM erasures AS receipt
        WHERE receipt.context_id = verify_chain.context_id
            AND EXISTS (
                SELECT FROM frames
                WHERE frames.context_id = verify_chain.context_id AND frames.version = receipt.version + 1
            )
            AND NOT EXISTS (
                SELECT FROM frames
                WHERE frames.context_id = verify_chain.context_id AND frames.version <= receipt.version
            )
        UNION ALL
        SELECT 0, sha256(convert_to(verify_chain.context_id, 'UTF8'))
        ORDER BY version DESC
        LIMIT 1
    ),
    links AS (
        SELECT
            frames.version,
            frames.chain,
            lag(frames.version, 1, beginning.version) OVER (ORDER BY frames.version) AS version_before,
            lag(frames.chain, 1, beginning.chain) OVER (ORDER BY frames.version) AS chain_before,
            convert_to(frames.source, 'UTF8') AS source,
            convert_to(frames.payload::text, 'UTF8') AS value
        FROM frames
        CROSS JOIN beginning
        WHERE frames.context_id = verify_chain.context_id
    ),
    problems AS (
        SELECT
            links.version,
            CASE
                WHEN links.version <> links.version_before + 1 THEN 'frames are missing before it'
                WHEN links.chain <> sha256(
                    links.chain_before
                    || int8send(links.version)
                    || int4send(coalesce(octet_length(links.source), -1))
                    || coalesce(links.source, '')
                    || links.value
                ) THEN 'its value, its source or its link is not what was stored'
                WHEN links.version = verify_chain.expected_version AND links.chain <> verify_chain.expected_chain
                    THEN 'its link is not the one that was written down'
            END AS problem
        FROM links
    ),
    verdict AS (
        SELECT
            count(*) AS frame_count,
            max(problems.version) AS last,
            min(problems.version) FILTER (WHERE problems.problem IS NOT NULL) AS broken_at,
            (array_agg(problems.problem ORDER BY problems.version) FILTER (WHERE problems.problem IS NOT NULL))[1]
                AS problem
        FROM problems
    )
    SELECT
        ending.problem IS NULL,
        verdict.frame_count,
        CASE
            WHEN ending.problem IS NULL THEN NULL
            WHEN verdict.problem IS NULL AND verify_chain.expected_version <= beginning.version THEN beginning.version
            ELSE coalesce(verdict.broken_at, verdict.last)
        END,
        ending.problem
    FROM verdict
    CROSS JOIN beginning
    LEFT JOIN contexts AS head ON head.context_id = verify_chain.context_id
    LEFT JOIN frames AS newest
        ON newest.context_id = verify_chain.context_id AND newest.version = verdict.last
    CROSS JOIN LATERAL (
        SELECT
            CASE
                WHEN verdict.problem IS NOT NULL THEN verdict.problem
                WHEN verdict.frame_count = 0 THEN 'there are no frames of this context'
                WHEN verdict.last < verify_chain.expected_version
                    THEN 'the version that was written down is not there any more'
                -- No frame has a link of a version that was erased; the receipt has the last one.
                WHEN verify_chain.expected_version < beginning.version
                    THEN 'the version that was written down was erased'
                WHEN verify_chain.expected_version = beginning.version
                    AND verify_chain.expected_chain <> beginning.chain
                    THEN 'its link is not the one that was written down'
                WHEN (head.version, head.chain) IS DISTINCT FROM (verdict.last, newest.chain)
                    THEN 'the head of the context says otherwise'
            END AS problem
    ) AS ending;
END;

COMMENT ON FUNCTION verify_chain(text, bigint, bytea) IS
    'Returns whether the stored frames of a context are those that were folded, none changed, removed or added: it '
    'computes the hash chain again, and compares it with a value that was kept elsewhere, if one is given. Of a version '
    'that was erased it says so: only the value at the erasure itself is still there to be compared. chain(0) is the '
    'sha256 of the context id; chain(n) is that of chain(n-1), int8send(n), int4send(bytes of source, -1 for null), '
    'source and payload, one after the other.';
