"""The command line: a file or a folder per group of commands, nothing but glue."""
