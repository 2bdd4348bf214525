"""The Llama family: specification, decoder, weights and their manifest."""
