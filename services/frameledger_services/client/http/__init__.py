"""A client that speaks HTTP to a gateway: for machines with neither a Kafka client's way to the broker nor SQL's to the
database. It needs the extra `http`."""

from frameledger_services import extras

with extras.needed("http"):
    import aiohttp as aiohttp
