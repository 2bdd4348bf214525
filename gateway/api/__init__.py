"""HTTP in: the data plane's listener. It knows Litestar and ASGI, but no vendor."""
