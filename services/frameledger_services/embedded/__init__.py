"""A real Kafka and a real PostgreSQL from packages, in one data directory, and what keeps them running.

Nothing is left outside the data directory but the downloaded jars, in the user's cache. Every server is a
`Program`: how it is started, how one can tell that it is ready, how it is stopped. Who starts it differs: a
test holds one with `running`, `frameledger up` keeps several alive with the supervisor.
"""
