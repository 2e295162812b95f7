"""Commands that repair: `recover`, `parked`, `unpark` and `dlq`."""
