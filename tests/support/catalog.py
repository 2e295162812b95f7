"""The catalog of a database: every object of a schema as text, so that two schemas can be compared."""

import psycopg

TABLES = """
SELECT format('%%s %%s: %%s', c.relkind, c.relname, coalesce(obj_description(c.oid), '')),
    coalesce(array_to_string(c.reloptions, ', '), '')
FROM pg_class AS c WHERE c.relnamespace = %(schema)s::regnamespace AND c.relkind IN ('r', 'v')
"""

COLUMNS = """
SELECT format('%%s.%%s', c.relname, a.attname),
    -- Not its number: a column that was dropped keeps its own.
    rank() OVER (PARTITION BY c.oid ORDER BY a.attnum)::text, format_type(a.atttypid, a.atttypmod),
    a.attnotnull::text, coalesce(locale.collname::text, ''), coalesce(pg_get_expr(d.adbin, d.adrelid), ''),
    coalesce(col_description(c.oid, a.attnum), '')
FROM pg_attribute AS a
JOIN pg_class AS c ON c.oid = a.attrelid AND c.relkind IN ('r', 'v')
LEFT JOIN pg_attrdef AS d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
LEFT JOIN pg_collation AS locale ON locale.oid = a.attcollation
WHERE c.relnamespace = %(schema)s::regnamespace AND a.attnum > 0 AND NOT a.attisdropped
"""

# Since PostgreSQL 18, every NOT NULL is a named constraint; the columns already show it.
CONSTRAINTS = """
SELECT conrelid::regclass::text, conname::text, pg_get_constraintdef(oid) FROM pg_constraint
WHERE connamespace = %(schema)s::regnamespace AND contype <> 'n' AND conrelid <> 0
"""

INDEXES = "SELECT indexname::text, indexdef FROM pg_indexes WHERE schemaname = %(schema)s"

FUNCTIONS = """
SELECT p.oid::regprocedure::text, pg_get_functiondef(p.oid), coalesce(obj_description(p.oid, 'pg_proc'), ''),
    coalesce(p.proacl::text, '')
FROM pg_proc AS p WHERE p.pronamespace = %(schema)s::regnamespace
"""

VIEWS = "SELECT viewname::text, definition FROM pg_views WHERE schemaname = %(schema)s"

TRIGGERS = """
SELECT c.relname::text, pg_get_triggerdef(t.oid), coalesce(obj_description(t.oid, 'pg_trigger'), '')
FROM pg_trigger AS t JOIN pg_class AS c ON c.oid = t.tgrelid
WHERE c.relnamespace = %(schema)s::regnamespace AND NOT t.tgisinternal
"""

GRANTS = """
SELECT table_name::text, grantee::text, privilege_type::text FROM information_schema.role_table_grants
WHERE table_schema = %(schema)s
"""


def describe(connection: psycopg.Connection, *queries: str, schema: str = "public") -> list[tuple[str, ...]]:
    """Returns the results of these queries for the schema, in order, with definitions that omit its name."""
    # Definitions name the schema unless it is on the path.
    connection.execute("SELECT set_config('search_path', %s, false)", (schema,))
    return sorted(
        tuple(word.replace(f"{schema}.", "") for word in row)
        for query in queries
        for row in connection.execute(query, {"schema": schema})
    )
