"""`python -m bench` is `odin bench`."""

import sys

from odin.cli import main

if __name__ == "__main__":
    main(["bench", *sys.argv[1:]])
