#!/usr/bin/env bash
# Build the wheel and the sdist of what is here into dist/, and check them: their metadata (twine), their content
# (scripts/check_dist.py), and the wheel installed in an environment of its own with what requirements/runtime.txt names.
#
# dist.sh            build and check
# dist.sh --release  only what is committed, under a version that CHANGELOG.md has a section for; then say how to publish it
set -euo pipefail
cd "$(dirname "$0")/.."

python=${PYTHON:-$PWD/.venv/bin/python}
version=$("$python" -c 'import tomllib; print(tomllib.load(open("pyproject.toml", "rb"))["project"]["version"])')

fail() {
  echo "error: $1" >&2
  exit 1
}

if [[ ${1:-} == --release ]]; then
  [[ -z $(git status --porcelain) ]] || fail "there are changes that are not committed"
  grep -qF "## [$version]" CHANGELOG.md || fail "CHANGELOG.md has no section [$version]"
  if git rev-parse -q --verify "refs/tags/v$version" >/dev/null; then fail "there is a tag v$version already"; fi
fi

rm -rf dist
"$python" -m hatchling build -d dist
"$python" -m twine --no-color check --strict dist/*
"$python" scripts/check_dist.py dist

echo "Installing the wheel in an environment of its own …"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$python" -m venv "$folder/venv"
pip=("$folder/venv/bin/python" -m pip --quiet --disable-pip-version-check)
"${pip[@]}" install --require-hashes -r requirements/runtime.txt
"${pip[@]}" install --no-deps --no-index dist/*.whl
"${pip[@]}" check
said=$(cd "$folder" && env -u PYTHONPATH venv/bin/penstock --version)
[[ $said == "penstock, version $version" ]] || fail "the installed command says: $said"

ls -l dist
if [[ ${1:-} == --release ]]; then
  echo "To publish: git tag v$version && git push --tags && $python -m twine upload dist/*"
fi
