"""The GPU rows of `gatewright engine bench`; importing this needs neither a GPU nor Triton."""
