"""The data plane: one endpoint in front of many models; every request decided and recorded."""

from gateway.without_orm import leave_out_orm


leave_out_orm()  # Before anything else imports SQLAlchemy.
