"""Finds content that is not text: base64 of some length, and the kind that it claims to be."""

_HEAD_LENGTH = 4096
_LEAST_BINARY_LENGTH = 64
# PNG, JPEG, GIF, WebP and BMP in base64.
_IMAGE_HEADS = ("iVBORw0KGgo", "/9j/", "R0lGOD", "UklGR", "Qk")


def is_binary(text: str) -> bool:
    """Long, and only characters of base64: not a text in disguise."""
    if len(text) < _LEAST_BINARY_LENGTH or not text.isascii():
        return False
    head = text[:_HEAD_LENGTH].translate(_NOT_BASE64)
    return " " not in text and "@" not in text and "_" not in head and "-" not in head


def binary_kind(part: dict[object, object], payload: str) -> str:
    media_type = part.get("media_type")
    if isinstance(media_type, str):
        return kind_of_media(media_type, payload)
    return "audio" if "format" in part else "binary"


def kind_of_media(media_type: str, payload: str) -> str:
    """The kind that a media type claims; an image must also begin like one."""
    kind = media_type.partition("/")[0].lower()
    if kind == "image":
        return "image" if payload.startswith(_IMAGE_HEADS) else "binary"
    return kind if kind in {"audio", "video"} else "document"


# Marks every character that base64 lacks with one that `is_binary` looks for.
_NOT_BASE64 = {
    code: "_" for code in range(0x80) if not (chr(code).isalnum() or chr(code) in "+/=\r\n")
}
