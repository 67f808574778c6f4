"""`penstock completion …`: what a shell needs to complete our commands, options and names."""

import os
from pathlib import Path

import click

from . import output
from .options import output_option
from .spelling import Choice


@click.command("completion")
@click.argument("shell", type=Choice("bash", "zsh", "fish"))
@click.option("--install", is_flag=True, help="Write it where the shell looks for it, in your own folders.")
@output_option
def completion_command(shell: str, install: bool) -> None:
    """Print what makes SHELL complete commands, options and names: `source <(penstock completion bash)`."""
    source = _source(shell)
    if not install:
        output.write(source.rstrip())
        return
    file = _place(shell)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(source, "utf-8")
    except OSError as error:
        raise click.ClickException(f"{file} cannot be written: {error.strerror}") from None
    output.done(f"{file} is written: {_then(shell, file)}", shell=shell, file=str(file))


def _source(shell: str) -> str:
    from .main import group
    from .shells import SHELLS, VARIABLE

    return SHELLS[shell](group, {}, "penstock", VARIABLE).source()


def _place(shell: str) -> Path:
    """Where the shell looks for completions of the user; zsh, where we let it look."""
    if shell == "bash":
        data = Path(os.environ.get("XDG_DATA_HOME") or "~/.local/share").expanduser()
        return data / "bash-completion" / "completions" / "penstock"
    if shell == "fish":
        config = Path(os.environ.get("XDG_CONFIG_HOME") or "~/.config").expanduser()
        return config / "fish" / "completions" / "penstock.fish"
    return Path("~/.zfunc/_penstock").expanduser()


def _then(shell: str, file: Path) -> str:
    if shell == "zsh":
        return f"have `fpath+={file.parent}` before `compinit` in ~/.zshrc, and start a new shell"
    if shell == "bash":
        return "start a new shell (the package bash-completion reads it; without, `source` it in ~/.bashrc)"
    return "start a new shell"
