"""Files in data URLs (`data:…;base64,…`, RFC 2397), in the form that other dialects take."""

import re
from collections.abc import Mapping

from msgspec import structs

from gateway.conversation import ImagePart
from gateway.dialects.loss import Losses, unsupported


_HEAD = re.compile(r"data:([^,;\s]{1,128})((?:;[^,;]{0,512}){0,8});base64,", re.IGNORECASE)
"""Bounded, because an address may be as long as a body, and matching blocks everything else."""
_MISTAKEN: Mapping[str, str] = {"image/jpg": "image/jpeg", "image/pjpeg": "image/jpeg"}
"""Types that programs derive from a file's ending. OpenAI accepts them, others only real ones."""


def inline_data(url: str) -> tuple[str, str]:
    """Media type and base64 of a data URL; two empty strings for any other address.

    The type is a real one in lower case, and has parameters only for texts: their character set.
    Percent-encoded data is not read: a server that decodes it after the inspection would pass on
    content that was not inspected.
    """
    head = _HEAD.match(url)
    if head is None or head.end() == len(url):
        return "", ""
    media_type = head[1].lower()
    if media_type.startswith("text/"):
        media_type += head[2]
    return _MISTAKEN.get(media_type, media_type), url[head.end() :]


_DETAILS = frozenset({"low", "high"})
"""How closely a model looks, in words that both of OpenAI's dialects have."""


def in_detail(image: ImagePart, detail: str | None, place: str, losses: Losses) -> ImagePart:
    """The image with that level of detail; a word that only one dialect has is reported."""
    if detail in _DETAILS:
        return structs.replace(image, detail=detail, detail_place=place)
    if detail not in {None, "auto"}:
        losses.add(place)
    return image


def image_at(url: str, place: str) -> ImagePart:
    """An image by its address, or inline.

    Raises:
        FeatureUnsupported: it is inline in a form that only OpenAI reads.
    """
    media_type, data = inline_data(url)
    if data:
        return ImagePart("", media_type, data)
    if url[:5].lower() == "data:":
        raise unsupported(place, "Images sent inline have to be in base64 there", 6)
    return ImagePart(url)
