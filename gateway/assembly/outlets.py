"""Sinks from the settings behind one shipper, and the collector of metrics.

Imported only where there are any.
"""

from collections.abc import Callable, Mapping

from gateway.assembly.approaches import approach_of
from gateway.assembly.wiring import as_setting
from gateway.clock import Clock
from gateway.configuration.settings import Settings
from gateway.errors import ConfigurationInvalid
from gateway.metrics import Metrics
from gateway.oversight.metric_points import Model
from gateway.oversight.metrics_push import MetricsPush
from gateway.oversight.otlp_answers import ANSWER_BYTES_MAX
from gateway.oversight.otlp_resource import Source
from gateway.providers.egress.client import Egress
from gateway.providers.outlets.otlp import OtlpCollector, SpanSink
from gateway.providers.outlets.pause import Pause
from gateway.providers.outlets.signing import Signer
from gateway.providers.outlets.sinks import FileSink, HttpSink, SyslogSink
from gateway.providers.outlets.webhook import WebHook
from gateway.secrets.credentials import metrics_credential, sink_credential, sink_signing_key
from gateway.store.engine import Database
from gateway.store.evidence.shipping import Shipper, Sink
from gateway.store.evidence.sink import DatabaseAuditSink
from gateway.types import Target


def make_shipper(
    settings: Settings, egress: Egress, database: Database, metrics: Metrics, clock: Clock
) -> Shipper:
    """Delivers the audit log to the sinks of the settings.

    Raises:
        ConfigurationInvalid: a sink has no address, or one that may not be called.
    """
    records = DatabaseAuditSink(database, settings.path(settings.audit.directory))
    sinks = {name: _sink(settings, name, egress, metrics, clock) for name in settings.sinks}
    return Shipper(database, records, sinks, clock, settings.audit.worker)


def make_metrics_push(
    settings: Settings,
    egress: Egress,
    metrics: Metrics,
    targets: Callable[[], Mapping[str, Target]],
    clock: Clock,
) -> MetricsPush:
    """Pushes metrics to the collector of the settings.

    Raises:
        ConfigurationInvalid: its address is none that the egress may call.
    """
    approach = approach_of(settings, settings.metrics, "metrics")
    with as_setting(settings, "providers.", "metrics.url"):
        hook = WebHook(
            "metrics",
            settings.metrics.url,
            metrics_credential(settings),
            egress,
            allow_plain_http=settings.metrics.allow_plain_http,
            approach=approach,
            answer_bytes_max=ANSWER_BYTES_MAX,
        )
    collector = OtlpCollector(hook, "metrics", metrics.count_rejected)

    def models() -> dict[str, Model]:
        kinds = _kinds(settings)
        return {
            name: Model(target.provider, kinds.get(target.provider, ""), target.model)
            for name, target in targets().items()
        }

    return MetricsPush(collector, metrics, models, clock, _source(settings))


def _source(settings: Settings) -> Source:
    told = settings.metrics
    return Source(settings.audit.worker, told.installation, told.environment)


def _kinds(settings: Settings) -> dict[str, str]:
    return {name: provider.kind for name, provider in settings.providers.items()}


def _sink(settings: Settings, name: str, egress: Egress, metrics: Metrics, clock: Clock) -> Sink:
    sink, section = settings.sinks[name], f"sinks.{name}"
    if not (sink.file if sink.kind == "jsonl" else sink.url):
        missing = "file" if sink.kind == "jsonl" else "url"
        raise ConfigurationInvalid(settings.source, f"{section}.{missing}", "is missing")
    if sink.kind == "jsonl":
        return FileSink(settings.path(sink.file))
    approach = approach_of(settings, sink, section)
    if sink.kind == "syslog":
        tls = approach.way_out.tls if approach.way_out else None
        with as_setting(settings, "sinks.", f"{section}.url"):
            return SyslogSink(section, sink.url, allow_plain=sink.allow_plain_http, tls=tls)
    credential, keys = sink_credential(settings, name), sink_signing_key(settings, name)
    with as_setting(settings, "providers.", f"{section}.url"):
        hook = WebHook(
            name,
            sink.url,
            credential,
            egress,
            allow_plain_http=sink.allow_plain_http,
            signer=Signer(section, keys, clock) if keys else None,
            approach=approach,
            answer_bytes_max=ANSWER_BYTES_MAX if sink.kind == "otlp" else 0,
        )
    if sink.kind == "http":
        return HttpSink(hook, Pause(clock))
    collector = OtlpCollector(hook, section, metrics.count_rejected)
    return SpanSink(collector, _kinds(settings), _source(settings), clock)
