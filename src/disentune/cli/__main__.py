"""`python -m disentune.cli`: the command line where no script is installed."""

from disentune.cli.app import main

main()
