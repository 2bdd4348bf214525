"""The command line: a file or folder per group of commands, nothing but glue."""
