"""A superuser who changes the tables by hand and can disable the trigger that protects frames."""

import psycopg

from frameledger.chain import first_link, next_link


def changed(address, *statements):
    """Run statements that the trigger would refuse; each has to change something."""
    with psycopg.connect(address) as connection:
        connection.execute("SET session_replication_role = replica")
        for statement in statements:
            assert connection.execute(statement).rowcount, statement


def rechained(address, context_id):
    """Rewrite the versions and the chain of a conversation, including those of its head, like a careful forger."""
    with psycopg.connect(address) as connection:
        connection.execute("SET session_replication_role = replica")
        chain, newest = first_link(context_id), 0
        frames = connection.execute(
            "SELECT version, source, payload::text FROM frames WHERE context_id = %s ORDER BY version",
            (context_id,),
        ).fetchall()
        for newest, (version, source, payload) in enumerate(frames, 1):
            chain = next_link(chain, newest, source, payload.encode())
            connection.execute(
                "UPDATE frames SET version = %s, chain = %s WHERE context_id = %s AND version = %s",
                (newest, chain, context_id, version),
            )
        connection.execute(
            "UPDATE contexts SET chain = %s, version = %s, state_version = least(state_version, %s) "
            "WHERE context_id = %s",
            (chain, newest, newest, context_id),
        )
