"""`python -m dragoman` is the command `dragoman`."""

import os
import sys

if __name__ == "__main__" and sys.path[:1] == [os.getcwd()]:  # noqa: PTH109 -- pathlib would be imported from there
    del sys.path[0]  # Python puts it there for `-m`; the command does not import what lies where it is started

from dragoman.cli import main

if __name__ == "__main__":
    sys.exit(main())
