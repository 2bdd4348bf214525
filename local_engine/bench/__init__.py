"""`gatewright engine bench`: the engine compared with the machine's own limits and with peers."""
