"""Run the blocks of a page as they are printed, in a folder of their own, against a server of their own."""

import ast
import asyncio
import contextlib
import io
import json
import os
import re
import signal
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any, Final, Self

import msgspec
import yaml

from penstock.pipeline.spec.parse import parse_spec
from penstock.server.config import Config
from penstock.testing.server import Address
from tests.support.pages import ROOT, Block, blocks, pages

WITHIN_S: Final = 240  # a busy machine may take long; nothing takes more than seconds on an idle one
_SHELLS: Final = ("sh", "bash")
_CHECKED: Final = {"toml", "json", "yaml", "properties"}
_ABSOLUTE: Final = ("/tables/", "/data/", "/ck/", "/backups", "/var/lib/penstock")
_PIPELINE: Final = re.compile(r"penstock pipeline run --once (\S+)\n\Z")
# What a reader waits for seconds may take longer where the machine is busy.
_WAITS: Final = re.compile(r"(timeout(?:_millis|_ms)?=)\d{4}\b")
_CONSUMES: Final = re.compile(r"penstock consume (?=.*--count)")
_ASSIGNED: Final = re.compile(r"^([A-Za-z_]+)=", re.MULTILINE)


def tried(needs: str = "") -> list[Path]:
    """The pages whose blocks run where there is what `needs` says."""
    return [page for page in pages() if (found := run_of(page)) and _needs(found) == needs]


def run_of(page: Path) -> list[Block]:
    """The blocks of a page that are run."""
    return [block for block in blocks(page) if not block.skipped and not block.run_by]


def _needs(found: list[Block]) -> str:
    needs = {block.needs for block in found} - {""}
    assert len(needs) < 2, f"{found[0].page} needs {needs}: one of them will do"
    return next(iter(needs), "")


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


class PageRun:
    """Where the blocks of one page run, one after the other; a later one finds what an earlier one left."""

    def __init__(
        self, folder: Path, server: Address, printed: dict[str, str] | None = None, **known: Any
    ) -> None:
        self.folder = folder
        (folder / "penstock.toml").touch()  # a configuration, where a command names one
        self.printed = {
            "http://127.0.0.1:8080": server.url,
            "ws://127.0.0.1:8080": server.ws,
            "pulsar://127.0.0.1:6650": server.pulsar,
            **(printed or {}),
            **{path: f"{folder}{path}" for path in _ABSOLUTE},
        }
        self.known: dict[str, Any] = {"__name__": "__page__", **known}
        self.variables = folder / ".variables"  # that earlier blocks of the shell set
        self.variables.touch()
        self.opened: dict[int, Any] = {}  # clients and connections, also those whose name a later block takes
        self.groups: list[int] = []  # of processes; a block may leave some running
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")},
            "HOME": str(folder),
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "PENSTOCK_URL": server.url,
            "XDG_CONFIG_HOME": str(folder / ".config"),  # contexts and completions are not the tester's
            "XDG_DATA_HOME": str(folder / ".data"),
            "PYTHONUNBUFFERED": "1",
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for group in self.groups:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)
        for value in self.opened.values():
            with contextlib.suppress(Exception):  # closed already
                value.close()

    def run_all(self, page: Path) -> None:
        for block in run_of(page):
            self.run(block)
        if list(self.folder.glob("test_line_*.py")):
            tests = f"{sys.executable} -m pytest -q -p no:cacheprovider ."
            self._shell(Block(name_of(page), 1, "sh", tests))

    def run(self, block: Block) -> None:
        """Fails where the block does, or does not print what its comments say."""
        output = self._output(block)
        # Some pages show an error on purpose: then the comment says which.
        if not any("error" in text for text in block.prints):
            assert not re.search(r'"error(_code|Code)?": ?("[^"]|[1-9])', output), f"{block.name}\n{output}"
        for text in block.prints:
            assert text in output, f"{block.name} does not print {text}, but\n{output}"

    def _output(self, block: Block) -> str:
        if block.file:
            (self.folder / block.file).write_text(self._there(block.text))
            return ""
        if block.needs == "spark" and (declared := _PIPELINE.match(block.text)):
            return self._pipeline(declared[1])
        if block.language in _SHELLS:
            return self._shell(block)
        if block.language == "console":
            return self._transcript(block)
        if block.language == "python":
            return self._python(block)
        if block.language == "sql":
            for statement in filter(str.strip, self._there(block.text).split(";")):
                self.known["spark"].sql(statement).collect()
            return ""
        assert block.language in _CHECKED, (
            f"{block.name}: nothing runs {block.language}; say why, or by which test"
        )
        check(block)
        return ""

    def _there(self, text: str) -> str:
        for printed, there in self.printed.items():
            text = text.replace(printed, there)
        return _WAITS.sub(r"\g<1>20000", _CONSUMES.sub(r"\g<0>--timeout 20000 ", text))

    def _pipeline(self, file: str) -> str:
        """What the command would do, in the session that is there."""
        from penstock.pipeline.run import pipeline

        declared = pipeline(self.folder / file, self.known["spark"], state=self.folder / "state")
        declared.start(once=True).await_termination()
        return ""

    def _shell(self, block: Block) -> str:
        # Servers are only checked: the one of this page is there already.
        text = re.sub(r"\bpenstock serve\b", "penstock serve --check", block.text)
        kept = [f"declare -p {name} >> .variables" for name in _ASSIGNED.findall(block.text)]
        script = "\n".join(["source ./.variables", block.before, text.rstrip("\n"), *kept])
        # Pipes would stay open as long as what runs on in the background.
        written, errors = self.folder / ".output", self.folder / ".errors"
        with written.open("wb") as output, errors.open("wb") as complaints:
            process = subprocess.Popen(
                ["bash", "-euo", "pipefail", "-c", self._there(script)],
                cwd=self.folder,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=complaints,
                start_new_session=True,
            )
            self.groups.append(process.pid)
            code = process.wait(WITHIN_S)
        said = written.read_text(errors="replace")
        assert code == 0, f"{block.name} ends with {code}\n{said}{errors.read_text(errors='replace')}"
        return said

    def _transcript(self, block: Block) -> str:
        """Commands behind `$`, and below each what it prints; lines may be broken otherwise."""
        for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
            lines = part.splitlines()
            end = next(n for n, line in enumerate(lines) if not line.endswith("\\")) + 1
            command = Block(block.page, block.line, "sh", "\n".join(lines[:end]), before=block.before)
            said = self._shell(command)
            expected = "".join("".join(lines[end:]).split())
            assert expected in "".join(said.split()), f"{block.name} does not print {expected}, but\n{said}"
        return ""

    def _python(self, block: Block) -> str:
        if re.search(r"^(async )?def test_", block.text, re.MULTILINE):
            (self.folder / f"test_line_{block.line}.py").write_text(self._there(block.text))
            return ""  # run with the others of the page: a start of pytest takes longer than most tests
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            for text in filter(None, (block.before, block.text)):
                code = compile(self._there(text), block.name, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
                waits = eval(code, self.known)
                if waits is not None:
                    asyncio.run(asyncio.wait_for(waits, WITHIN_S))
                made = (value for value in self.known.values() if not isinstance(value, type))
                self.opened |= {id(value): value for value in made if callable(getattr(value, "close", None))}
        return output.getvalue()


def check(block: Block) -> None:
    """That a block of data can be read, and TOML by who reads it."""
    match block.language:
        case "toml":
            content = tomllib.loads(block.text)
            if "name" in content:
                parse_spec(content, block.name, Path())
            elif content.keys() <= set(Config.__struct_fields__):
                msgspec.convert(content, Config, dec_hook=lambda type_, value: type_(value))
        case "json":
            rest = block.text.strip()
            while rest:
                _, end = json.JSONDecoder().raw_decode(rest)
                rest = rest[end:].strip()
        case "yaml":
            list(yaml.safe_load_all(block.text))
        case "properties":
            assert all("=" in line for line in block.text.splitlines() if line and not line.startswith("#"))
