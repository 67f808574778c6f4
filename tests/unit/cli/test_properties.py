"""NAME=VALUE on the command line."""

import click
import pytest
from click.testing import CliRunner

from penstock.cli.properties import clear_option, pairs_option, remove_option, set_option


@click.command()
@set_option()
@remove_option
@clear_option
@pairs_option("--query", "-q", help="A parameter.")
def shows(given: dict[str, str], removed: tuple[str, ...], clear: bool, query: dict[str, str]) -> None:
    click.echo((given, removed, clear, query))


def test_pairs_become_a_dictionary() -> None:
    given = ["--set", "a=1", "--set", "b==", "--set", "c=", "--remove", "d", "-q", "e=f"]
    done = CliRunner().invoke(shows, given)
    assert done.output == "({'a': '1', 'b': '=', 'c': ''}, ('d',), False, {'e': 'f'})\n"
    assert CliRunner().invoke(shows, ["--clear"]).output == "({}, (), True, {})\n"


@pytest.mark.parametrize(("option", "named"), [("--set", "--set"), ("-q", "--query")])
@pytest.mark.parametrize("text", ["a", "=1", ""])
def test_what_is_none_is_a_wrong_usage(option: str, named: str, text: str) -> None:
    done = CliRunner().invoke(shows, [option, text])
    assert done.exit_code == 2
    assert f"{named} {text}: NAME=VALUE is expected" in done.output
