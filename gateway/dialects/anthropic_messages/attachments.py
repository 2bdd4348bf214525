"""Content of a message other than text: images, documents and search results."""

from typing import Final

import msgspec

from gateway.conversation import DocumentPart, ImagePart, TextPart
from gateway.dialects.anthropic_messages.wire import Block, InnerBlock, Said, Source
from gateway.dialects.loss import Losses, cache_life, unsupported


SEARCH_RESULT: Final = "search_result"
_UNCITED: Final[tuple[object, ...]] = (None, {}, {"enabled": False})
_SEAM: Final = "\n"


def attached(block: Block | InnerBlock, place: str, losses: Losses) -> ImagePart | DocumentPart:
    """An image or a document.

    Raises:
        FeatureUnsupported: it is neither, or only its own vendor could get it.
    """
    source = block.source
    if isinstance(source, Source):
        if block.type == "image":
            return _image(source, place)
        if block.type == "document":
            if block.context is not None:
                losses.add("messages.document.context")
            if block.citations not in _UNCITED:
                losses.add("messages.citations")
            return _document(source, block.title or "", place, losses)
    raise unsupported(f"{place}.type", "This kind of content has no equivalent there", 8)


def search_result(block: Block | InnerBlock, place: str, losses: Losses) -> TextPart:
    """What the caller's own search found, as a text: its title, where it is from, what it says.

    Raises:
        FeatureUnsupported: it holds something that is no text.
    """
    if block.citations not in _UNCITED:
        losses.add("messages.citations")
    source = block.source if isinstance(block.source, str) else ""
    texts = [block.title or "", source, *_texts(block.content, f"{place}.content", losses)]
    return TextPart(_SEAM.join(filter(None, texts)), cache_life(block.cache_control))


def _texts(content: object, place: str, losses: Losses) -> list[str]:
    if isinstance(content, str):
        return [content]
    try:
        texts = msgspec.convert(content, list[Said], from_attributes=True)
    except msgspec.ValidationError:
        raise unsupported(place, "Only texts in it can be passed on", 8) from None
    if any(said.cache_control is not None for said in texts):
        losses.add("cache_control")
    if any(said.citations for said in texts):
        losses.add("messages.citations")
    return [said.text for said in texts]


def _image(source: Source, place: str) -> ImagePart:
    if source.type == "base64" and source.data is not None:
        return ImagePart("", source.media_type or "", source.data)
    if source.type == "url" and source.url is not None:
        return ImagePart(source.url)
    raise unsupported(f"{place}.source.type", "Only images by URL or inline can be passed on", 6)


def _document(source: Source, title: str, place: str, losses: Losses) -> DocumentPart:
    if source.type == "base64" and source.data is not None:
        return DocumentPart(source.media_type or "", source.data, title=title)
    if source.type == "text" and source.data is not None:
        return DocumentPart(text=source.data, title=title)
    if source.type == "content":
        texts = _texts(source.content, f"{place}.source.content", losses)
        return DocumentPart(text=_SEAM.join(texts), title=title)
    if source.type == "url" and source.url is not None:
        return DocumentPart(title=title, url=source.url)
    raise unsupported(f"{place}.source.type", "Only documents by URL or inline can be passed on", 8)
