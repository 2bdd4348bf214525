"""What a target's dialect or model cannot express: rephrased, left out, or refused."""
