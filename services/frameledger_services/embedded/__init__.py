"""A real Kafka and a real PostgreSQL from packages, in one data directory, and their supervisor.

Nothing is stored outside the data directory except the downloaded jars, in the user's cache. Every server is a
`Program`: how it is started, tested for readiness and stopped. Tests run one with `running`; `frameledger up` keeps
several running with the supervisor.
"""
