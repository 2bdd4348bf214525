"""The vendors' SDKs over our egress; only `gateway.providers.sdk` imports this module.

The SDKs bring types, paging and error classes; every connection is still opened by the egress, with
the headers of our own route, and no SDK retries.
"""

from collections.abc import Awaitable, Callable, Mapping

import anthropic
import httpx2
import openai

from gateway.errors import UpstreamFailed, UpstreamTimeout
from gateway.providers.egress.client import Egress, Route
from gateway.providers.http_provider import describe_status


# The credential is in the route already; the SDKs only check that there is one.
_IN_THE_ROUTE = "held-by-the-egress"


LIST_BYTES_MAX = 32 * 1024
"""A longer list of models is not read."""
_NO_MODELS = b'{"object":"list","data":[],"has_more":false,"first_id":null,"last_id":null}'


class EgressTransport(httpx2.AsyncBaseTransport):
    """Sends an SDK's GET to the route it stands for, and nowhere else."""

    def __init__(self, egress: Egress, route: Route, deadline_s: float) -> None:
        self._egress = egress
        self._route = route
        self._deadline_s = deadline_s

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if request.method != "GET" or request.url.path != self._route.url.path:
            raise httpx2.UnsupportedProtocol("only the prepared route can be asked")
        try:
            reply = await self._egress.ask(self._route, self._deadline_s)
            try:
                body = await reply.read()
            finally:
                await reply.close()
        except UpstreamTimeout as error:
            raise httpx2.ReadTimeout(error.message) from error
        except UpstreamFailed as error:
            raise httpx2.ConnectError(error.message) from error
        headers = {"content-type": "application/json"}
        # An SDK makes an object of each model, on the event loop; only the status is needed.
        body = body if len(body) <= LIST_BYTES_MAX else _NO_MODELS
        return httpx2.Response(reply.status, headers=headers, content=body, request=request)


def http_client(egress: Egress, route: Route, deadline_s: float) -> httpx2.AsyncClient:
    """An httpx2 client that reads no proxy and no credential from its environment."""
    return httpx2.AsyncClient(
        transport=EgressTransport(egress, route, deadline_s), trust_env=False, timeout=deadline_s
    )


async def probe_anthropic(egress: Egress, route: Route, deadline_s: float) -> str:
    client = anthropic.AsyncAnthropic(
        api_key=_IN_THE_ROUTE,
        base_url=str(route.url).removesuffix("/v1/models"),
        max_retries=0,
        http_client=http_client(egress, route, deadline_s),
    )
    try:
        await client.models.list()
    except anthropic.APIStatusError as error:
        return describe_status(error.status_code)
    except anthropic.APITimeoutError:
        return "it did not answer in time"
    except anthropic.APIConnectionError as error:
        return _describe(error)
    except (anthropic.AnthropicError, ValueError):
        return "it lists its models in an unknown form"
    finally:
        await client.close()
    return ""


async def probe_openai(egress: Egress, route: Route, deadline_s: float) -> str:
    client = openai.AsyncOpenAI(
        api_key=_IN_THE_ROUTE,
        base_url=str(route.url).removesuffix("/models"),
        max_retries=0,
        http_client=http_client(egress, route, deadline_s),
    )
    try:
        await client.models.list()
    except openai.APIStatusError as error:
        return describe_status(error.status_code)
    except openai.APITimeoutError:
        return "it did not answer in time"
    except openai.APIConnectionError as error:
        return _describe(error)
    except (openai.OpenAIError, ValueError):
        return "it lists its models in an unknown form"
    finally:
        await client.close()
    return ""


def _describe(error: Exception) -> str:
    """Our own words for a failed connection, from the bottom of the SDK's chain of causes."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, UpstreamFailed):
            return cause.message
        cause = cause.__cause__
    return "the upstream could not be connected to"


PROBES: Mapping[str, Callable[[Egress, Route, float], Awaitable[str]]] = {
    "anthropic": probe_anthropic,
    "openai": probe_openai,
}
