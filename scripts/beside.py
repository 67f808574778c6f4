"""Whether Penstock resolves beside popular packages: python scripts/beside.py [package …]

Each package of requirements/popular.in is resolved alone; what that gives is its newest version. Then it is resolved in this
version together with what pyproject.toml names. Nothing is installed, but metadata is fetched: about a minute the first
time, from the package index that the machine is set up for. Fails where a package resolves alone and not beside Penstock.
"""

import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
UV = Path(sysconfig.get_path("scripts")) / "uv"
PYTHON = "3.12"  # which all of them support
TIMEOUT_S = 300
LINES_SHOWN = 12


def resolve(*requirements: str) -> tuple[dict[str, str], str]:
    """Name to version, or why there is no solution."""
    command = [UV, "pip", "compile", "-q", "--no-annotate", "--no-header", "--python-version", PYTHON, "-"]
    try:
        done = subprocess.run(
            command, input="\n".join(requirements), capture_output=True, text=True, timeout=TIMEOUT_S
        )
    except subprocess.TimeoutExpired:
        return {}, f"no answer within {TIMEOUT_S} s"
    if done.returncode:
        return {}, done.stderr.strip() or f"uv ended with {done.returncode}"
    lines = [line.split(";")[0].strip() for line in done.stdout.splitlines()]
    return {name: version for name, found, version in (line.partition("==") for line in lines) if found}, ""


def look_at(package: str, ours: list[str]) -> bool:
    """Print a line; whether it resolves beside Penstock as far as it does alone."""
    alone, why = resolve(package)
    if why:
        print(f"  ?  {package}: does not resolve alone\n{_shortened(why)}", flush=True)
        return True
    version = alone[package.partition("[")[0]]
    _, why = resolve(f"{package}=={version}", *ours)
    print(f"  {'no' if why else 'ok'} {package} {version}", flush=True)
    if why:
        print(_shortened(why), flush=True)
    return not why


def _shortened(text: str) -> str:
    return "\n".join(f"       {line}" for line in text.splitlines()[:LINES_SHOWN])


def main() -> int:
    with (ROOT / "pyproject.toml").open("rb") as file:
        ours = tomllib.load(file)["project"]["dependencies"]
    listed = (ROOT / "requirements" / "popular.in").read_text("utf-8").splitlines()
    packages = sys.argv[1:] or [line for line in listed if line and not line.startswith("#")]
    failed = [package for package in packages if not look_at(package, ours)]
    print(
        f"{len(packages) - len(failed)} of {len(packages)} resolve"
        + "".join(f"; not {one}" for one in failed)
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
