"""Models at cloud APIs: regions, how calls authenticate, and what refusals mean."""
