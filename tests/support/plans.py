"""Records the plans of executed statements."""


class Explaining:
    """A connection that explains each statement and then executes it. It keeps the latest plan."""

    def __init__(self, connection, options="FORMAT JSON", *, prepare=None):
        """`options` are those of `EXPLAIN`, in JSON; `prepare` is that of the connection's `execute`."""
        self.connection = connection
        self.plan = None
        self._explain = f"EXPLAIN ({options}) ".encode()
        self._prepare = prepare

    async def execute(self, statement, parameters):
        cursor = await self.connection.execute(
            self._explain + statement.encode(), parameters, prepare=self._prepare
        )
        self.plan = (await cursor.fetchone())[0][0]["Plan"]
        return await self.connection.execute(statement, parameters, prepare=self._prepare)


def nodes(plan):
    yield plan
    for part in plan.get("Plans", ()):
        yield from nodes(part)
