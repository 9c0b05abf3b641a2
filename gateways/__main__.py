"""Runs the command line as `python -m gateways`."""

from gateways.cli import main

if __name__ == "__main__":
    main()
