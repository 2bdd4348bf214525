"""The sinks of the settings behind one shipper; imported only where there are any."""

from gateway.assembly.wiring import as_setting
from gateway.clock import Clock
from gateway.configuration.settings import Settings
from gateway.errors import ConfigurationInvalid
from gateway.providers.egress.client import Egress
from gateway.providers.outlets.signing import Signer
from gateway.providers.outlets.sinks import FileSink, HttpSink, SyslogSink
from gateway.secrets.credentials import sink_credential, sink_signing_key
from gateway.store.engine import Database
from gateway.store.evidence.shipping import Shipper, Sink
from gateway.store.evidence.sink import DatabaseAuditSink


def make_shipper(settings: Settings, egress: Egress, database: Database, clock: Clock) -> Shipper:
    """Delivers the audit log to the sinks of the settings.

    Raises:
        ConfigurationInvalid: a sink has no address, or one that may not be called.
    """
    records = DatabaseAuditSink(database, settings.path(settings.audit.directory))
    sinks = {name: _sink(settings, name, egress, clock) for name in settings.sinks}
    return Shipper(database, records, sinks, clock, settings.audit.worker)


def _sink(settings: Settings, name: str, egress: Egress, clock: Clock) -> Sink:
    sink, section = settings.sinks[name], f"sinks.{name}"
    if not (sink.file if sink.kind == "jsonl" else sink.url):
        missing = "file" if sink.kind == "jsonl" else "url"
        raise ConfigurationInvalid(settings.source, f"{section}.{missing}", "is missing")
    if sink.kind == "jsonl":
        return FileSink(settings.path(sink.file))
    if sink.kind == "syslog":
        with as_setting(settings, "sinks.", f"{section}.url"):
            return SyslogSink(section, sink.url, allow_plain=sink.allow_plain_http)
    credential, keys = sink_credential(settings, name), sink_signing_key(settings, name)
    signer = Signer(section, keys, clock) if keys else None
    with as_setting(settings, "providers.", f"{section}.url"):
        return HttpSink(
            name,
            sink.url,
            credential,
            egress,
            allow_plain_http=sink.allow_plain_http,
            as_telemetry=sink.kind == "otlp",
            signer=signer,
        )
