"""Whole round trips: official clients, a gateway on a socket, and an upstream of every dialect."""
