"""The data plane: one endpoint, decided and recorded, many models."""

from gateway.without_orm import leave_out_orm


leave_out_orm()  # Before anything else imports SQLAlchemy.
