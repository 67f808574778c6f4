# shellcheck shell=bash
# What pulsar.sh and kafka.sh have in common; to be sourced, with `out` as the folder of what was fetched.

readonly READY_S=180

has() { command -v "$1" >/dev/null 2>&1; }

# missing WHY: say that what was to be fetched cannot be had, for tests to be skipped with this line.
missing() {
  echo "$1" >"$out/missing"
  echo "skipped: what needs a ${NAME^}: $1" >&2
  exit 0
}

# at_least 17 21.0.1: the second version is as new as the first.
at_least() { printf '%s\n%s\n' "$1" "$2" | sort -C -V; }
java_version() { java -version 2>&1 | sed -n '1s/.*version "\([0-9.]*\).*/\1/p'; }

prepare_fetch() {
  mkdir -p "$out"
  rm -f "$out/missing"
  has java && has mvn || missing "java (17 or later) and mvn are needed"
  at_least 17 "$(java_version)" || missing "java 17 or later is needed"
}

# A folder for a broker's data, which is removed with the broker at the end.
prepare_start() {
  if [[ ! -e $out/home ]]; then
    echo "there is no ${NAME^} to start: $(cat "$out/missing" 2>/dev/null || echo "scripts/$NAME.sh fetch has not run")" >&2
    exit 1
  fi
  broker=
  folder=$(mktemp -d)
  trap leave EXIT
  trap 'exit 130' INT TERM
}

# in_background COMMAND …: start a broker, as `broker`, in a process group of its own, for all of it to be ended.
in_background() {
  set -m
  "$@" >"$folder/output" 2>&1 </dev/null &
  broker=$!
  set +m
}

# wait_until COMMAND …: until it succeeds.
wait_until() {
  local until=$((SECONDS + READY_S))
  until "$@"; do
    if ! kill -0 "$broker" 2>/dev/null || ((SECONDS > until)); then
      tail -n 30 "$folder/output" >&2
      echo "${NAME^} does not start" >&2
      exit 1
    fi
    sleep 0.5
  done
}

leave() {
  if [[ -n $broker ]]; then
    kill -KILL -- "-$broker" 2>/dev/null || true # its data is thrown away: nothing has to be saved
    wait "$broker" 2>/dev/null || true
  fi
  rm -rf "$folder"
}

# free_ports 3: so many, of 127.0.0.1.
free_ports() {
  ${PYTHON:-.venv/bin/python} -c '
import sys
from socket import socket
held = [socket() for _ in range(int(sys.argv[1]))]
for one in held:
    one.bind(("127.0.0.1", 0))
print(*(one.getsockname()[1] for one in held))' "$1"
}
