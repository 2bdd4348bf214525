"""What a target's dialect or model has no word for: said otherwise, left out, or refused."""
