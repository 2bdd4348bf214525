"""`gatewright engine bench`: the engine against the machine's own floor and against peers."""
