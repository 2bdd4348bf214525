"""Signs what web hooks are sent, by the Standard Webhooks specification, version 1.

Source of headers, key format and signed text: https://www.standardwebhooks.com, whose libraries
verify them. A message that is sent again after a lost answer keeps its id.
"""

import base64
import binascii
import hashlib
import hmac

from gateway.clock import SECOND_US, Clock
from gateway.errors import ConfigurationInvalid
from gateway.secrets.secret import Secret


PREFIX = "whsec_"
KEY_BYTES_MIN = 24
KEY_BYTES_MAX = 64
_ID_CHARS = 32


class Signer:
    """Signs with each key of a text such as `whsec_<base64>`, or with two separated by a blank.

    Two are for replacing keys: a receiver accepts a message that either key signed.
    """

    def __init__(self, section: str, keys: Secret[str], clock: Clock) -> None:
        """Raises ConfigurationInvalid if a key is malformed."""
        self._keys = tuple(_key(section, text) for text in keys.reveal().split())
        self._clock = clock
        if not self._keys:
            raise ConfigurationInvalid(section, "signing_key", "is empty")

    def headers(self, body: bytes, about: str = "") -> dict[str, str]:
        """Id (of its subject), time and signatures for a body that is sent now."""
        message = f"gw_{hashlib.sha256(about.encode() or body).hexdigest()[:_ID_CHARS]}"
        now_s = self._clock.utc_us() // SECOND_US
        signed = b"%b.%d.%b" % (message.encode(), now_s, body)
        made = [hmac.digest(key.reveal(), signed, "sha256") for key in self._keys]
        return {
            "webhook-id": message,
            "webhook-timestamp": str(now_s),
            "webhook-signature": " ".join(f"v1,{base64.b64encode(one).decode()}" for one in made),
        }


def _key(section: str, text: str) -> Secret[bytes]:
    reason = f"must be {PREFIX} and {KEY_BYTES_MIN} to {KEY_BYTES_MAX} random bytes in base64"
    try:
        key = base64.b64decode(text.removeprefix(PREFIX), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    is_random = len(set(key)) > len(key) // 4
    if not (text.startswith(PREFIX) and KEY_BYTES_MIN <= len(key) <= KEY_BYTES_MAX and is_random):
        raise ConfigurationInvalid(section, "signing_key", reason)
    return Secret(key)
