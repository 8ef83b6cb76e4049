"""`python -m cluster up`, `demo`, `down`, `ps`, `logs`: the same as `odin up` and so on."""

from odin.cli import main

if __name__ == "__main__":
    main()
