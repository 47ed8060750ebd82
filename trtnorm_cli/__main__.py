"""Run trtnorm as a module: ``python -m trtnorm_cli``."""

from trtnorm_cli.cli import main

main()
