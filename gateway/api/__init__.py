"""HTTP in: the data plane's listener. It knows Litestar and ASGI, and no vendor."""
