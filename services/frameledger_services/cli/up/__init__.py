"""`frameledger up`, `down` and `status`: the embedded servers and the services, as one thing."""
