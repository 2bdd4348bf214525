"""Models at cloud APIs: regions, authentication of calls, and the meaning of refusals."""
