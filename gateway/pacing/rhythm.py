"""How often a worker does each of its background duties, in seconds. Numbers only."""

LOG_S = 0.25
REVISIONS_S = 0.25
"""How often the counter of changes is looked at; on PostgreSQL a bell rings besides."""
FOLLOW_RETRY_S = 0.5
PROBE_S = 0.5
GUARD_S = 1.0
HEALTH_S = 1.0
PROJECTION_S = 1.0
SINKS_S = 1.0
ALERTS_S = 5.0
RULES_S = 2.0
"""How often some requests are looked at whose rules nobody knows, where there are any."""
OLD_ALERTS_S = 3600.0
RAISES_S = 60.0
"""How often it is asked whether a limit that was larger for a time has to end."""
PARITY_S = 1.0
"""How often it is asked whether replicas are to be compared; when, `gateway.pool.parity` says."""
CHECKPOINTS_S = 5.0
"""How often it is asked whether a checkpoint is due; when, `audit.checkpoint_period_s` says."""
PRICES_S = 5.0
CERTIFICATES_S = 5.0
"""How often files of certificates are looked at, a listener's and providers'; new ones are used
once they have rested for a look."""
PROOFS_S = 5.0
"""How often it is asked whether what proves us to a cloud ends soon."""
ISSUER_KEYS_S = 15.0
"""How often it is asked whose keys are old; `gateway.secrets.issuer_keys` says when they are."""
ANSWERS_S = 600.0
FLOODS_S = 10.0
"""How often it is asked whether refusals are left out of which a record may be written."""
OPEN_INTENTS_S = 30.0
"""How much of a log a start after a crash may have to read, in time."""
GONE_WORKERS_S = 300.0
ERASURES_S = 60.0
"""How often an audit folder is asked for erasures that it has not carried out; a change that all
workers follow, such as the end of a case, is asked about at once."""
RETENTION_S = 3600.0
"""How often it is asked whether a day has begun of which an audit folder has not been looked at."""
BATCHES_S = 0.5
BACKGROUND_S = 1.0
"""A beat of answers that are made in the background: so soon a worker hears of a cancelled one."""
TURNS_S = 1.0
"""How often it is asked whether turns with conversations have to be renewed, and what the
database did not take is tried again."""
PARCELS_S = 2.0
BATCH_LEASES_S = 5.0
"""A sixth of a lease: several renewals may fail."""
AWAITED_S = 1.0
"""How often a start on a database that was put back looks whether the other workers are there."""
LOOSE_ENDS_S = 20.0
EXPIRED_FILES_S = 600.0
CHECKUPS_S = 1.0
CLOCK_S = 3600.0
CLOCK_JUMPS_S = 0.5
