#!/usr/bin/env bash
# The oldest versions that pyproject.toml allows, in an environment of its own, tests/oldest/build/venv.
#
# oldest.sh fetch: install them, as requirements/oldest.txt has them. Where that cannot be, as on a Python that is newer than
#   their wheels, the file `missing` beside it says so, and what needs them is skipped with this line.
# oldest.sh run COMMAND …: run a command of .venv with them in place of its own.
set -euo pipefail
cd "$(dirname "$0")/.."
out=tests/oldest/build

fetch() {
  rm -rf "$out"
  mkdir -p "$out"
  .venv/bin/python -m venv "$out/venv"
  if ! "$out/venv/bin/python" -m pip install --quiet --disable-pip-version-check --only-binary :all: --require-hashes \
    -r requirements/oldest.txt; then
    rm -rf "$out/venv"
    echo "requirements/oldest.txt cannot be installed on $(.venv/bin/python --version)" >"$out/missing"
    echo "skipped: what needs the oldest versions: $(cat "$out/missing")" >&2
  fi
}

run() {
  [[ -e $out/venv ]] || { cat "$out/missing" >&2 && exit 1; }
  local packages
  packages=$("$out/venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  PYTHONPATH=$packages:$PWD/src:$PWD exec "$@"
}

case ${1:-} in
fetch) fetch ;;
run) run "${@:2}" ;;
*)
  echo "usage: $0 fetch | run COMMAND …" >&2
  exit 2
  ;;
esac
