"""`frameledger demo`: what the recorded conversation of `frameledger_services.demo` looks like."""
