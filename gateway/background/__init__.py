"""Answers that are made without a waiting caller: begun, kept alive, read, cancelled, ended."""
