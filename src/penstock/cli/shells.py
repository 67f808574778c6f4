"""What bash, zsh and fish are given to complete our commands, and what they are answered when they ask.

A shell asks by running `penstock` with `_PENSTOCK_COMPLETE` and the command's line up to the cursor in `COMP_LINE`. Each line of
the answer is TYPE, VALUE and HELP with tabs between them; types are click's: `plain`, `file`, `dir`.

The scripts are our own instead of click's: its one for zsh, installed where zsh looks for it, does nothing at every session's second
tab; its one for fish cuts descriptions at a comma; its one for bash does not know that a colon separates words there.
"""

from __future__ import annotations

import os
from typing import Final

from click.shell_completion import CompletionItem, ShellComplete, add_completion_class, split_arg_string

VARIABLE: Final = "_PENSTOCK_COMPLETE"  # by which the shell asks; click's rule for a program of our name
_CURSOR: Final = "\0"  # no line has it

# What bash replaces begins after the last `:` or `=` of the word; it is given as $2.
_BASH: Final = r"""_penstock_completion() {
    local type value help word=${COMP_LINE:0:COMP_POINT}
    local before=${word##*[[:space:]]}
    before=${before%"$2"}
    COMPREPLY=()
    while IFS=$'\t' read -r type value help; do
        case $type in
            dir) compopt -o dirnames ;;
            file) compopt -o default ;;
            plain)
                [[ $value == *[/=] ]] && compopt -o nospace
                COMPREPLY+=("${value#"$before"}")
                ;;
        esac
    done < <(COMP_LINE=$word _PENSTOCK_COMPLETE=bash_complete "$1")
}

complete -o nosort -F _penstock_completion penstock
"""

# As a file in fpath it is the body of the function `_penstock`, every time.
_ZSH: Final = r"""#compdef penstock

_penstock_completion() {
    local type value help
    local -a described names open
    local files= folders=
    (( $+commands[penstock] )) || return 1
    while IFS=$'\t' read -r type value help; do
        case $type in
            dir) folders=1 ;;
            file) files=1 ;;
            plain)
                if [[ $value == *[/=] ]]; then
                    open+=("$value")
                elif [[ -n $help ]]; then
                    described+=("${value//:/\\:}:$help")
                else
                    names+=("$value")
                fi
                ;;
        esac
    done < <(COMP_LINE="${words[1,CURRENT-1]} $PREFIX" _PENSTOCK_COMPLETE=zsh_complete penstock)
    (( $#described )) && _describe -V unsorted described
    (( $#names )) && compadd -V unsorted -a names
    (( $#open )) && compadd -V unsorted -S '' -a open
    if [[ -n $files$folders ]]; then
        [[ $PREFIX == -*=* ]] && compset -P 1 '*='
        if [[ -n $files ]]; then _path_files; else _path_files -/; fi
    fi
}

if [[ $funcstack[1] == _penstock ]]; then
    _penstock_completion
else
    compdef _penstock_completion penstock
fi
"""

_FISH: Final = r"""function _penstock_completion
    for line in (env COMP_LINE=(commandline -cp | string join ' ') _PENSTOCK_COMPLETE=fish_complete penstock)
        set -l parts (string split \t -- $line)
        switch $parts[1]
            case dir file
                set -l before (string match --regex -- '^-[^=]*=' (commandline -ct))
                for path in (test $parts[1] = dir; and __fish_complete_directories $parts[2]; or __fish_complete_path $parts[2])
                    printf '%s%s\n' "$before" $path
                end
            case plain
                printf '%s\t%s\n' $parts[2] "$parts[3]"
        end
    end
end

complete --no-files --keep-order --command penstock --arguments "(_penstock_completion)"
"""


class Answers(ShellComplete):
    """Completes a line, in one form for every shell."""

    _option = ""  # `--name=`, where that is the begin of the word

    def source(self) -> str:
        """The script as it is: nothing in it is to be filled in."""
        return self.source_template

    def get_completion_args(self) -> tuple[list[str], str]:
        """The words before the one that is being typed, and this."""
        *words, incomplete = split_arg_string(os.environ.get("COMP_LINE", "") + _CURSOR)
        incomplete = incomplete.removesuffix(_CURSOR)
        if incomplete.startswith("-") and "=" in incomplete:
            self._option = f"{incomplete.partition('=')[0]}="
        return words[1:], incomplete

    def format_completion(self, item: CompletionItem) -> str:
        """A line of the answer."""
        value = f"{self._option}{item.value}" if item.type == "plain" else str(item.value)
        return "\t".join((item.type, value, " ".join((item.help or "").split())))


class Bash(Answers):
    """bash, 4.4 or later."""

    name = "bash"
    source_template = _BASH


class Zsh(Answers):
    """zsh."""

    name = "zsh"
    source_template = _ZSH


class Fish(Answers):
    """fish."""

    name = "fish"
    source_template = _FISH


SHELLS: Final[dict[str, type[Answers]]] = {shell.name: shell for shell in (Bash, Zsh, Fish)}


def register() -> None:
    """Let click answer shells by these classes."""
    for shell in SHELLS.values():
        add_completion_class(shell)
