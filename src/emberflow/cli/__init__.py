"""The `emberflow` command line: `main` owns the commands and imports nothing heavy, so --help answers at once."""
