"""The gateway: HTTP for programs and pages that have neither a Kafka client nor SQL. `README.md` is its map."""
