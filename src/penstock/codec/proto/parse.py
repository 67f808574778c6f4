"""A `.proto` file becomes a descriptor. Names of types are left as they are written: `resolve` finds them."""

from typing import Final

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)

from .names import SCALARS, json_name
from .options import Value, default_text, read_option, read_options, set_option
from .tokens import ProtoError, Tokens

DEPTH_MAX: Final = 32  # of messages in messages, as protoc allows
_NUMBER_MAX: Final = 2**29  # of fields, exclusive
_ENUM_MAX: Final = 2**31 - 1
_LABELS: Final = {
    "optional": FieldDescriptorProto.LABEL_OPTIONAL,
    "required": FieldDescriptorProto.LABEL_REQUIRED,
    "repeated": FieldDescriptorProto.LABEL_REPEATED,
}


def parse(name: str, text: str) -> FileDescriptorProto:
    """Raises ProtoError."""
    try:
        return _Parser(name, text).file
    except ProtoError:
        raise
    except (TypeError, ValueError, OverflowError) as error:  # what a descriptor does not take
        raise ProtoError(f"{name}: {error}") from None


class _Parser:
    def __init__(self, name: str, text: str) -> None:
        self.file = FileDescriptorProto(name=name)
        self._tokens = tokens = Tokens(text)
        self._proto3 = False
        if tokens.peek() == "edition":
            raise tokens.error("editions are not understood: write syntax proto2 or proto3")
        if tokens.skip("syntax"):
            tokens.expect("=")
            syntax = tokens.text().decode()
            tokens.expect(";")
            if syntax not in ("proto2", "proto3"):
                raise tokens.error(f"syntax {syntax!r} is not known")
            self._proto3 = syntax == "proto3"
            if self._proto3:
                self.file.syntax = syntax
        while tokens.more:
            self._of_file()

    def _of_file(self) -> None:
        tokens, file = self._tokens, self.file
        match tokens.take():
            case ";":
                pass
            case "package":
                file.package = tokens.name()
                tokens.expect(";")
            case "import":
                kind = tokens.take() if tokens.peek() in ("public", "weak") else ""
                file.dependency.append(tokens.text().decode())
                if kind == "public":
                    file.public_dependency.append(len(file.dependency) - 1)
                tokens.expect(";")
            case "option":
                name, value = read_option(tokens)
                set_option(file.options, name, value, tokens)
                tokens.expect(";")
            case "message":
                self._message(file.message_type.add(), 1)
            case "enum":
                self._enum(file.enum_type.add())
            case "extend":
                self._extend(file, 1)
            case "service":
                tokens.take("word")
                tokens.expect("{")
                tokens.skip_block("{", "}")
            case other:
                raise tokens.error(f"{other!r} is not expected")

    # -- messages

    def _message(self, message: DescriptorProto, depth: int) -> None:
        message.name = self._tokens.take("word")
        self._body(message, depth)

    def _body(self, message: DescriptorProto, depth: int) -> None:
        tokens = self._tokens
        if depth > DEPTH_MAX:
            raise tokens.error(f"more than {DEPTH_MAX} messages in one another")
        tokens.expect("{")
        while not tokens.skip("}"):
            self._of_message(message, depth)
        self._optional_fields(message)

    def _of_message(self, message: DescriptorProto, depth: int) -> None:
        tokens = self._tokens
        word = tokens.peek()
        if word == "message":
            tokens.take()
            self._message(message.nested_type.add(), depth + 1)
        elif word == "enum":
            tokens.take()
            self._enum(message.enum_type.add())
        elif word == "extend":
            tokens.take()
            self._extend(message, depth)
        elif word == "oneof":
            tokens.take()
            self._oneof(message, depth)
        elif word == "option":
            tokens.take()
            name, value = read_option(tokens)
            set_option(message.options, name, value, tokens)
            tokens.expect(";")
        elif word == "reserved":
            tokens.take()
            self._reserved(message)
        elif word == "extensions":
            tokens.take()
            for first, end in self._ranges(_NUMBER_MAX - 1):
                message.extension_range.add(start=first, end=end + 1)
            read_options(tokens)
            tokens.expect(";")
        elif not tokens.skip(";"):
            self._field(message, message.field.add(), depth)

    def _optional_fields(self, message: DescriptorProto) -> None:
        """In proto3 each optional field is in a separate oneof, after all others."""
        for field in message.field:
            if field.proto3_optional:  # not so of extensions, which are not of the message
                field.oneof_index = len(message.oneof_decl)
                message.oneof_decl.add(name=f"_{field.name}")

    def _oneof(self, message: DescriptorProto, depth: int) -> None:
        tokens = self._tokens
        index = len(message.oneof_decl)
        message.oneof_decl.add(name=tokens.take("word"))
        tokens.expect("{")
        while not tokens.skip("}"):
            if tokens.skip("option"):
                read_option(tokens)
                tokens.expect(";")
            elif not tokens.skip(";"):
                field = message.field.add(oneof_index=index)
                self._field(message, field, depth, label=FieldDescriptorProto.LABEL_OPTIONAL)

    def _extend(self, within: FileDescriptorProto | DescriptorProto, depth: int) -> None:
        tokens = self._tokens
        extendee = tokens.name()
        tokens.expect("{")
        while not tokens.skip("}"):
            if not tokens.skip(";"):
                self._field(within, within.extension.add(extendee=extendee), depth)

    # -- fields

    def _field(
        self,
        within: FileDescriptorProto | DescriptorProto,
        field: FieldDescriptorProto,
        depth: int,
        *,
        label: FieldDescriptorProto.Label.ValueType | None = None,
    ) -> None:
        tokens = self._tokens
        said = label is None and tokens.peek() in _LABELS
        field.label = _LABELS[tokens.take()] if said else label or FieldDescriptorProto.LABEL_OPTIONAL
        if tokens.peek() == "map" and tokens.peek(1) == "<" and isinstance(within, DescriptorProto):
            self._map(within, field)
            return
        kind = tokens.name()
        if label is None and not said and not self._proto3:
            raise tokens.error("a field of proto2 is optional, required or repeated")
        if kind == "group":
            self._group(within, field, depth)
            return
        self._typed(field, kind)
        field.name = tokens.take("word")
        self._numbered(field)
        tokens.expect(";")
        if said and self._proto3 and field.label == FieldDescriptorProto.LABEL_OPTIONAL:
            field.proto3_optional = True

    def _typed(self, field: FieldDescriptorProto, kind: str) -> None:
        if kind in SCALARS:
            field.type = SCALARS[kind]
        else:
            field.type_name = kind

    def _numbered(self, field: FieldDescriptorProto) -> None:
        """`= number [options]`."""
        tokens = self._tokens
        tokens.expect("=")
        number = tokens.integer()
        if not 0 < number < _NUMBER_MAX:
            raise tokens.error(f"{number} is no number of a field")
        field.number = number
        options = read_options(tokens)
        field.json_name = json_name(field.name)
        for name, value in options.items():
            self._option(field, name, value)

    def _option(self, field: FieldDescriptorProto, name: str, value: Value) -> None:
        if name == "default":
            field.default_value = default_text(field.type if not field.type_name else 0, value, self._tokens)
        elif name == "json_name" and value[0] == "text":
            field.json_name = value[1].decode()
        else:
            set_option(field.options, name, value, self._tokens)

    def _map(self, message: DescriptorProto, field: FieldDescriptorProto) -> None:
        tokens = self._tokens
        tokens.take()
        tokens.expect("<")
        kinds = [tokens.name()]
        tokens.expect(",")
        kinds.append(tokens.name())
        tokens.expect(">")
        field.name = tokens.take("word")
        self._numbered(field)
        tokens.expect(";")
        camel = json_name(field.name)
        entry = message.nested_type.add(name=f"{camel[:1].upper()}{camel[1:]}Entry")
        entry.options.map_entry = True
        for number, (name, kind) in enumerate(zip(("key", "value"), kinds, strict=True), 1):
            part = entry.field.add(
                name=name, number=number, label=FieldDescriptorProto.LABEL_OPTIONAL, json_name=name
            )
            self._typed(part, kind)
        field.label = FieldDescriptorProto.LABEL_REPEATED
        field.type_name = entry.name

    def _group(
        self, within: FileDescriptorProto | DescriptorProto, field: FieldDescriptorProto, depth: int
    ) -> None:
        """A message and a field of it, whose name is the message's in small letters."""
        name = self._tokens.take("word")
        field.name = name.lower()
        self._numbered(field)
        field.type = FieldDescriptorProto.TYPE_GROUP
        field.type_name = name
        types = within.nested_type if isinstance(within, DescriptorProto) else within.message_type
        made = types.add(name=name)
        self._body(made, depth + 1)

    # -- enums and numbers

    def _enum(self, enum: EnumDescriptorProto) -> None:
        tokens = self._tokens
        enum.name = tokens.take("word")
        tokens.expect("{")
        while not tokens.skip("}"):
            if tokens.skip("option"):
                name, value = read_option(tokens)
                set_option(enum.options, name, value, tokens)
                tokens.expect(";")
            elif tokens.skip("reserved"):
                self._reserved(enum)
            elif not tokens.skip(";"):
                made = enum.value.add(name=tokens.take("word"))
                tokens.expect("=")
                made.number = tokens.integer()
                for name, value in read_options(tokens).items():
                    set_option(made.options, name, value, tokens)
                tokens.expect(";")

    def _reserved(self, within: DescriptorProto | EnumDescriptorProto) -> None:
        tokens = self._tokens
        if tokens.peek()[:1] in ("'", '"') and tokens.peek():
            within.reserved_name.append(tokens.text().decode())
            while tokens.skip(","):
                within.reserved_name.append(tokens.text().decode())
        else:
            enum = isinstance(within, EnumDescriptorProto)
            for first, end in self._ranges(_ENUM_MAX if enum else _NUMBER_MAX - 1):
                within.reserved_range.add(start=first, end=end if enum else end + 1)
        tokens.expect(";")

    def _ranges(self, most: int) -> list[tuple[int, int]]:
        tokens = self._tokens
        found = []
        while True:
            first = end = tokens.integer()
            if tokens.skip("to"):
                end = most if tokens.skip("max") else tokens.integer()
            found.append((first, end))
            if not tokens.skip(","):
                return found
