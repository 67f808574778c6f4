#!/usr/bin/env bash
# Run all tests in three processes beside each other: those of tests/pipeline, which mostly wait for Spark, those of
# tests/clusters, which mostly wait for brokers, and all others, whose output is shown as it comes.
#
# scripts/test.sh [argument of pytest …]; with a path or the name of a test among them, one process runs what they name.
# Fails where one of them fails, and what failed is shown at the end.
set -euo pipefail
set -m # process groups of their own, for an interrupt to reach what each has started
cd "$(dirname "$0")/.."

pytest=(.venv/bin/python -m pytest)
readonly NONE=5 # pytest's code where -k or -m leaves no test
readonly LANES=(others pipeline clusters)

for argument in "$@"; do
  if [ -e "${argument%%::*}" ]; then exec "${pytest[@]}" "$@"; fi
done
if [ -t 1 ]; then pytest+=(--color=yes); fi

logs=$(mktemp -d)
running=() codes=() # by the place of the lane
leave() {
  for group in "${running[@]}"; do kill -INT -- "-$group" 2>/dev/null || true; done
  wait
  rm -rf "$logs"
}
trap leave EXIT
trap 'exit 130' INT TERM

# A cache for each, for --last-failed.
for lane in 1 2; do
  name=${LANES[lane]}
  "${pytest[@]}" "tests/$name" -o cache_dir=".pytest_cache/$name" "$@" >"$logs/$name" 2>&1 </dev/null &
  running[lane]=$!
done
{ "${pytest[@]}" tests examples/testing --ignore=tests/pipeline --ignore=tests/clusters "$@" 2>&1 </dev/null | tee -i "$logs/others"; } &
running[0]=$!

for lane in "${!LANES[@]}"; do
  codes[lane]=0
  wait "${running[lane]}" || codes[lane]=$?
  unset "running[lane]"
done

failed() { [ "${codes[$1]}" -ne 0 ] && [ "${codes[$1]}" -ne "$NONE" ]; }
summary() { sed -n '/short test summary info/,$p' "$logs/$1" | grep . || tail -n 20 "$logs/$1"; }

for lane in 1 2; do
  echo "tests/${LANES[lane]}:"
  if failed "$lane"; then cat "$logs/${LANES[lane]}"; else summary "${LANES[lane]}"; fi
done
if failed 0; then
  echo "All others (their failures are above):"
  summary others
fi
for lane in "${!LANES[@]}"; do
  if failed "$lane"; then exit "${codes[lane]}"; fi
done
for code in "${codes[@]}"; do
  if [ "$code" -ne "$NONE" ]; then exit 0; fi
done
exit "$NONE"
