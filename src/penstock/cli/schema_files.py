"""Schemas from files: `.avsc` is Avro, `.json` is JSON by its Avro definition, `.proto` is Protobuf."""

import tempfile
from importlib import import_module
from pathlib import Path
from typing import Final

import click

_TYPES: Final = {".avsc": "AVRO", ".json": "JSON", ".proto": "PROTOBUF_NATIVE"}


def schema_of(file: Path, kind: str | None = None, message: str | None = None) -> dict[str, str]:
    """`type` and `schema` as the registry takes them; raises ClickException with one sentence."""
    found = kind.upper() if kind else _TYPES.get(file.suffix.lower())
    if found is None:
        raise click.ClickException(f"{file}: name its type with --type, or call it .avsc, .json or .proto")
    if file.suffix.lower() == ".proto":
        return {"type": "PROTOBUF_NATIVE", "schema": _compiled(file, message)}
    try:
        return {"type": found, "schema": file.read_text("utf-8")}
    except OSError as error:
        raise click.ClickException(f"{file} cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise click.ClickException(f"{file} is no text") from None


def _compiled(file: Path, message: str | None) -> str:
    """The definition of a message in a `.proto` file: the one named, or the only one."""
    try:
        protoc = import_module("grpc_tools.protoc")
    except ImportError:
        raise click.ClickException(
            "a .proto file needs the compiler of protobuf: pip install 'penstock[proto]'"
        ) from None
    from penstock.codec.descriptors import messages_in, native_schema

    if not file.is_file():
        raise click.ClickException(f"{file} cannot be read: no such file")
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "set"
        include = Path(str(protoc.__file__)).parent / "_proto"
        arguments = [
            "protoc",
            f"--proto_path={file.parent}",
            f"--proto_path={include}",
            "--include_imports",
            f"--descriptor_set_out={target}",
            str(file),
        ]
        if protoc.main(arguments) != 0:
            raise click.ClickException(f"{file} is no good protobuf")
        descriptors = target.read_bytes()
    names = messages_in(descriptors)
    wanted = message or (names[0] if len(names) == 1 else None)
    if wanted is None:
        raise click.ClickException(f"{file}: name one of its messages with --message: {', '.join(names)}")
    return native_schema(descriptors, wanted).data.decode()
