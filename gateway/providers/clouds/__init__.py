"""Models at the clouds' own APIs: where their regions are, how calls prove themselves, refusals."""
