#!/usr/bin/env bash
# Resolve pyproject.toml into exact versions with hashes.
#
#   requirements/runtime.txt   what an operator needs
#   requirements/lock.txt      that, every extra and the dev group: what `make setup` installs
#   requirements/docs.txt      the docs group alone: what `make docs` installs, elsewhere
#   requirements/oldest.txt    what an operator needs, each in the oldest version that pyproject.toml allows: `make oldest`
#
# Versions already locked are kept; `scripts/lock.sh --upgrade` moves everything to the newest
# that pyproject.toml allows. Resolved on the oldest Python that we support, whose needs include
# those of the newer ones. Nothing of the package index or of this machine gets into the files.
set -euo pipefail
cd "$(dirname "$0")/.."

python=.venv/bin/python
export CUSTOM_COMPILE_COMMAND="make lock"

compile() {
  "$python" -m piptools compile --quiet --strip-extras --no-annotate --allow-unsafe --generate-hashes \
    --no-emit-index-url --no-emit-find-links --no-emit-trusted-host --no-emit-options "$@"
}

"$python" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' ||
  echo "warning: locking on another Python than 3.11, the oldest supported" >&2

# pip-compile does not read dependency groups itself: they go in through its standard input.
group() {
  "$python" - "$1" <<'PY'
import sys, tomllib

with open("pyproject.toml", "rb") as file:
    print(*tomllib.load(file)["dependency-groups"][sys.argv[1]], sep="\n")
PY
}

group dev | compile "$@" --all-extras --output-file requirements/lock.txt pyproject.toml -
group docs | compile "$@" --output-file requirements/docs.txt -

compile --constraint requirements/lock.txt --output-file requirements/runtime.txt pyproject.toml

"$python" - <<'PY' | compile --output-file requirements/oldest.txt -
import re
import tomllib

with open("pyproject.toml", "rb") as file:
    for asked in tomllib.load(file)["project"]["dependencies"]:
        print(re.sub(r">=([^,]+).*", r"==\1", asked))
PY

if grep -nE '://|^-|@ file' requirements/*.txt; then
  echo "error: the lines above tie the lock to one index or machine" >&2
  exit 1
fi
