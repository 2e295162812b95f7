"""The event log: its topics on Kafka, and how its records are written and read.

The only room that uses aiokafka. It returns values of `frameledger.record`.
"""
