"""Values that are too long to be shown whole: only how they begin, and how long they are."""

import msgspec

_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])


def cut_value(text: str, most: int) -> str:
    """A message's JSON whose value takes at most `most` characters; one that was longer is a text of how it begins.

    `valueSize` is then how many bytes of JSON the whole value takes.
    """
    if len(text) <= most:
        return text
    fields = _fields.decode(text)
    value = bytes(fields["value"])
    if len(value) <= most:
        return text
    whole = msgspec.json.decode(value, type=str) if value.startswith(b'"') else value.decode()
    fields["value"] = msgspec.Raw(msgspec.json.encode(whole[:most]))
    fields["valueSize"] = msgspec.Raw(b"%d" % len(value))
    return msgspec.json.encode(fields).decode()
