"""`python -m frameledger_services`: the same command line as `frameledger`."""

from frameledger_services.cli import main

if __name__ == "__main__":
    main()
