"""The event log: its topics on Kafka, and how its records are written and read.

The only room that speaks to aiokafka. What it hands out are values of `frameledger.record`.
"""
