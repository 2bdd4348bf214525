"""How often a worker does each of its background duties, in seconds. Numbers only."""

LOG_S = 0.25
REVISIONS_S = 0.25
"""How often the counter of changes is checked; on PostgreSQL a notification comes as well."""
FOLLOW_RETRY_S = 0.5
PROBE_S = 0.5
GUARD_S = 1.0
HEALTH_S = 1.0
PROJECTION_S = 1.0
SINKS_S = 1.0
ALERTS_S = 5.0
RULES_S = 2.0
"""How often requests with unknown rules are looked up, if there are any."""
OLD_ALERTS_S = 3600.0
RAISES_S = 60.0
"""How often to check whether a temporarily raised limit has to end."""
PARITY_S = 1.0
"""How often to check whether replicas are to be compared; `gateway.pool.parity` says when."""
CHECKPOINTS_S = 5.0
"""How often to check whether a checkpoint is due; `audit.checkpoint_period_s` says when."""
PRICES_S = 5.0
CERTIFICATES_S = 5.0
"""How often certificate files are checked, a listener's and providers'; new ones are used once they
have stayed the same for one check."""
PROOFS_S = 5.0
"""How often to check whether a credential for a cloud ends soon."""
ISSUER_KEYS_S = 15.0
"""How often to check whose keys are old; `gateway.secrets.issuer_keys` says when they are."""
ANSWERS_S = 600.0
FLOODS_S = 10.0
"""How often to check whether omitted refusals may be recorded by now."""
OPEN_INTENTS_S = 30.0
"""How much of a log, in time, a start after a crash may have to read."""
GONE_WORKERS_S = 300.0
ERASURES_S = 60.0
"""How often an audit folder is checked for erasures not carried out yet; after a change that all
workers follow, such as the end of a case, it is checked at once."""
RETENTION_S = 3600.0
"""How often to check whether a new day has begun for which an audit folder was not examined."""
BATCHES_S = 0.5
BACKGROUND_S = 1.0
"""The beat of background answers: a worker hears of a cancelled one within this time."""
TURNS_S = 1.0
"""How often to check whether turns of conversations have to be renewed; writes that the database
did not take are tried again then."""
PARCELS_S = 2.0
BATCH_LEASES_S = 5.0
"""A sixth of a lease: several renewals may fail."""
AWAITED_S = 1.0
"""How often a start on a restored database checks whether the other workers are there."""
LOOSE_ENDS_S = 20.0
EXPIRED_FILES_S = 600.0
CHECKUPS_S = 1.0
CLOCK_S = 3600.0
CLOCK_JUMPS_S = 0.5
