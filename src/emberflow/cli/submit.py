"""The command line as a file, for ``spark-submit FILE train ...``, which runs files only."""

import sys
from pathlib import Path

if __name__ == "__main__":
    # Python puts a program's folder first, where our files would hide other packages' modules of the same name.
    sys.path[:] = [folder for folder in sys.path if folder != str(Path(__file__).parent)]
    from emberflow.cli.main import app

    app(prog_name="emberflow")
