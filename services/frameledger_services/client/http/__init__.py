"""The client for a gateway's HTTP API: for machines that can reach neither the broker nor the database. It needs the
extra `http`."""

from frameledger_services import extras

with extras.needed("http"):
    import aiohttp as aiohttp
