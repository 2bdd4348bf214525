"""The data plane: one endpoint, decided and recorded, many models."""
