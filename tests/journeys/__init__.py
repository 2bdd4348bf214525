"""Stories over HTTP, named by who does what: the real data plane, real sockets, official SDKs."""
