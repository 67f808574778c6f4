"""What is wrong with a built wheel and sdist: python scripts/check_dist.py FOLDER

What is compared comes from the sources: every file of theirs is in the wheel, and nothing else.
"""

import sys
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[1]
SOURCES = ROOT / "src"
WHEEL_BYTES_MAX = 3_000_000
SDIST_BYTES_MAX = 6_000_000
LICENCES = {"LICENSE", "LICENSE-htm", "LICENSE-preact", "LICENSE-uplot"}
# Each has to be there, whatever the sources say.
NEEDED = {
    "penstock/py.typed",
    "pyspark_penstock/py.typed",
    "pyspark_penstock_lake/py.typed",
    "penstock/wire/pulsar.binpb",
    "penstock/pipeline/log4j2.properties",
    "penstock/server/console/static/index.html",
    "penstock/server/console/static/vendor/preact-htm.js",
    "penstock/demo/delays.toml",
}
NEEDED_SOURCES = {
    "pyproject.toml",
    "README.md",
    "CHANGELOG.md",
    "LICENSE",
    "src/penstock/py.typed",
    "tests/conftest.py",
}
UNWANTED_SOURCES = {"build", "node_modules", "__pycache__", ".venv", "results"}


def problems(folder: Path) -> list[str]:
    """A line each; none for a release that may go out."""
    wheels, sdists = sorted(folder.glob("*.whl")), sorted(folder.glob("*.tar.gz"))
    if len(wheels) != 1 or len(sdists) != 1:
        return [f"{folder} has {len(wheels)} wheels and {len(sdists)} sdists, rather than one of each"]
    return [*_of_wheel(wheels[0]), *_of_sdist(sdists[0])]


def _of_wheel(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as file:
        names = set(file.namelist())
        [info] = [name for name in names if name.endswith(".dist-info/METADATA")]
        metadata = Parser().parsestr(file.read(info).decode("utf-8"))
    dist_info = info.removesuffix("METADATA")
    content = {name for name in names if not name.startswith(dist_info)}
    sources = {path.relative_to(SOURCES).as_posix() for path in SOURCES.rglob("*") if _belongs(path)}
    licences = {PurePosixPath(name).name for name in names if name.startswith(f"{dist_info}licenses/")}
    found = [f"the wheel lacks {name}" for name in sorted((sources | NEEDED) - content)]
    found += [f"the wheel has {name}, which is no source" for name in sorted(content - sources)]
    found += [f"the wheel lacks the licence file {name}" for name in sorted(LICENCES - licences)]
    if wheel.stat().st_size > WHEEL_BYTES_MAX:
        found.append(f"the wheel has {wheel.stat().st_size} bytes, more than {WHEEL_BYTES_MAX}")
    if not wheel.name.endswith("-py3-none-any.whl"):
        found.append(f"{wheel.name} is not for every platform")
    tied = [name for name in metadata.get_all("Requires-Dist", []) if "@" in name or "://" in name]
    return found + [f"the wheel asks for {name}" for name in tied]


def _belongs(path: Path) -> bool:
    return path.is_file() and "__pycache__" not in path.parts and not path.name.startswith(".")


def _of_sdist(sdist: Path) -> list[str]:
    with tarfile.open(sdist) as file:
        names = {name.partition("/")[2] for name in file.getnames()}
    found = [f"the sdist lacks {name}" for name in sorted(NEEDED_SOURCES - names)]
    found += [
        f"the sdist has {name}" for name in sorted(names) if UNWANTED_SOURCES & set(PurePosixPath(name).parts)
    ]
    if sdist.stat().st_size > SDIST_BYTES_MAX:
        found.append(f"the sdist has {sdist.stat().st_size} bytes, more than {SDIST_BYTES_MAX}")
    return found


def main() -> int:
    found = problems(Path(sys.argv[1]))
    for problem in found:
        print(problem, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
