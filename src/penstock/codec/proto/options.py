"""Options of `.proto` files: protobuf's own that hold one value are kept, all others are left out."""

import struct
from typing import Any, Final

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.text_encoding import CEscape

from penstock.codec.cardinality import is_repeated

from .tokens import Tokens

Value = tuple[str, Any]  # "word", "integer", "float", "text" or "block", and what it is
_BOOLS: Final = {"true": True, "false": False}
_FLOATS: Final = (FieldDescriptor.TYPE_FLOAT, FieldDescriptor.TYPE_DOUBLE)


def read_option(tokens: Tokens) -> tuple[str, Value]:
    """`name = value`; an extension's name is empty."""
    name, own = "", True
    while True:
        if tokens.skip("("):
            tokens.name()
            tokens.expect(")")
            own = False
        else:
            name += tokens.take("word")
            tokens.check_name(name)
        if not tokens.skip("."):
            break
        own = False
    tokens.expect("=")
    return name if own else "", _read_value(tokens)


def read_options(tokens: Tokens) -> dict[str, Value]:
    """`[name = value, …]`, if it is there."""
    found: dict[str, Value] = {}
    if tokens.skip("["):
        while True:
            name, value = read_option(tokens)
            found[name] = value
            if tokens.skip("]"):
                break
            tokens.expect(",")
    found.pop("", None)
    return found


def _read_value(tokens: Tokens) -> Value:
    token = tokens.peek()
    if token == "{":  # noqa: S105 # a brace
        tokens.take()
        tokens.skip_block("{", "}")
        return "block", None
    if token[:1] in ("'", '"') and token:
        return "text", tokens.text()
    sign = "-" if tokens.skip("-") else ""
    if not sign:
        tokens.skip("+")
    token = tokens.take()
    if token[0].isdigit() or token[0] == ".":
        return _number(tokens, token, sign)
    while tokens.skip("."):
        token += "." + tokens.take("word")
        tokens.check_name(token)
    return ("float", float(sign + token)) if token in ("inf", "nan") else ("word", token)


def _number(tokens: Tokens, token: str, sign: str) -> Value:
    octal = token[0] == "0" and token.isdigit() and len(token) > 1
    try:
        return "integer", int(sign + token, 8 if octal else 0)
    except ValueError:
        pass
    try:
        return "float", float(sign + token.rstrip("fF"))
    except ValueError:
        raise tokens.error(f"{token!r} is no number") from None


def set_option(options: Message, name: str, value: Value, tokens: Tokens) -> None:
    """Keep an option of protobuf's own."""
    field = options.DESCRIPTOR.fields_by_name.get(name)
    kind, content = value
    if field is None or is_repeated(field) or field.message_type is not None or kind == "block":
        return
    try:
        if field.enum_type is not None:
            setattr(options, name, field.enum_type.values_by_name[content].number)
        elif field.type == FieldDescriptor.TYPE_BOOL:
            setattr(options, name, _BOOLS[content])
        elif kind == "text":
            setattr(options, name, content.decode())
        else:
            setattr(options, name, content)
    except (KeyError, TypeError, ValueError):
        raise tokens.error(f"{content!r} is no value of the option {name}") from None


def default_text(field_type: int, value: Value, tokens: Tokens) -> str:
    """A field's default as descriptors have it; `field_type` 0: an enum's."""
    kind, content = value
    if field_type == FieldDescriptor.TYPE_BYTES and kind == "text":
        return CEscape(content, False)
    if kind == "text":
        return str(content.decode())
    if field_type in _FLOATS and kind in ("integer", "float"):
        return _shortest(float(content), "d" if field_type == FieldDescriptor.TYPE_DOUBLE else "f")
    if kind in ("integer", "word"):
        return str(content)
    raise tokens.error(f"{content!r} is no default of the field")


def _shortest(number: float, size: str) -> str:
    """As protoc writes it: the fewest digits that give the same number."""
    few, many = ("%.15g", "%.17g") if size == "d" else ("%.6g", "%.9g")
    try:
        same = struct.pack(size, float(few % number)) == struct.pack(size, number)
    except OverflowError:
        same = False
    return (few if same else many) % number


def written(options: Message, *, but: frozenset[str] = frozenset()) -> list[str]:
    """`name = value` of each option that is kept."""
    found = []
    for field, value in options.ListFields():
        if field.is_extension or is_repeated(field) or field.message_type is not None or field.name in but:
            continue
        found.append(f"{field.name} = {_written(field, value)}")
    return found


def _written(field: FieldDescriptor, value: Any) -> str:
    if field.enum_type is not None:
        return str(field.enum_type.values_by_number[value].name)
    if isinstance(value, bool):
        return "true" if value else "false"
    return quoted(value.encode()) if isinstance(value, str) else str(value)


def quoted(content: bytes) -> str:
    """A text as it is written."""
    return f'"{CEscape(content, False)}"'
