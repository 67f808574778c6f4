#!/usr/bin/env bash
# Run all tests in two processes beside each other: those of tests/pipeline, which mostly wait for Spark, and all others.
#
# scripts/test.sh [argument of pytest …]; with a path or the name of a test among them, one process runs what they name.
# Fails where one of the two fails, and what failed is shown at the end.
set -euo pipefail
set -m # process groups of their own, for an interrupt to reach what each has started
cd "$(dirname "$0")/.."

pytest=(.venv/bin/python -m pytest)
readonly NONE=5 # pytest's code where -k or -m leaves no test

for argument in "$@"; do
  if [ -e "${argument%%::*}" ]; then exec "${pytest[@]}" "$@"; fi
done
if [ -t 1 ]; then pytest+=(--color=yes); fi

logs=$(mktemp -d)
running=()
leave() {
  for group in "${running[@]}"; do kill -INT -- "-$group" 2>/dev/null || true; done
  wait
  rm -rf "$logs"
}
trap leave EXIT
trap 'exit 130' INT TERM

# A cache for each, for --last-failed.
"${pytest[@]}" tests/pipeline -o cache_dir=.pytest_cache/pipeline "$@" >"$logs/pipeline" 2>&1 </dev/null &
pipeline=$!
{ "${pytest[@]}" tests --ignore=tests/pipeline "$@" 2>&1 </dev/null | tee -i "$logs/others"; } &
others=$!
running=("$pipeline" "$others")

others_code=0 pipeline_code=0
wait "$others" || others_code=$?
wait "$pipeline" || pipeline_code=$?
running=()

failed() { [ "$1" -ne 0 ] && [ "$1" -ne "$NONE" ]; }
summary() { sed -n '/short test summary info/,$p' "$1" | grep . || tail -n 20 "$1"; }

echo "tests/pipeline:"
if failed "$pipeline_code"; then cat "$logs/pipeline"; else summary "$logs/pipeline"; fi
if failed "$others_code"; then
  echo "All others (their failures are above):"
  summary "$logs/others"
  exit "$others_code"
fi
if failed "$pipeline_code"; then exit "$pipeline_code"; fi
if [ "$others_code" -ne 0 ] && [ "$pipeline_code" -ne 0 ]; then exit "$NONE"; fi
