"""`python -m odin.cli` is `odin`."""

from odin.cli import main

main()
