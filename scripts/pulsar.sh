#!/usr/bin/env bash
# Apache Pulsar on this machine, for tests and for the demo.
#
# pulsar.sh fetch: download and unpack it, once, into tests/clusters/build/pulsar. Where Java or Maven is missing, or
#   nothing can be downloaded, the file `missing` there says so, and the tests that need it are skipped with this line.
# pulsar.sh demo [argument of `penstock demo` …]: run the demo through a standalone of its own, which is started for it and
#   ended with it; through the cluster that PULSAR_URL and PULSAR_ADMIN name, where they are set.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
out=$PWD/tests/clusters/build/pulsar

readonly PULSAR=4.0.8
readonly READY_S=180

has() { command -v "$1" >/dev/null 2>&1; }
missing() {
  echo "$1" >"$out/missing"
  echo "skipped: what needs a Pulsar: $1" >&2
  exit 0
}
# at_least 17 21.0.1: the second version is as new as the first.
at_least() { printf '%s\n%s\n' "$1" "$2" | sort -C -V; }
java_version() { java -version 2>&1 | sed -n '1s/.*version "\([0-9.]*\).*/\1/p'; }

fetch() {
  mkdir -p "$out"
  rm -f "$out/missing"
  has java && has mvn || missing "java (17 or later) and mvn are needed"
  at_least 17 "$(java_version)" || missing "java 17 or later is needed"
  local home=$out/apache-pulsar-$PULSAR
  if [[ ! -e $home/.done ]]; then
    rm -rf "$out"/apache-pulsar-*
    local artifact=org.apache.pulsar:pulsar-server-distribution:$PULSAR:tar.gz:bin
    mvn -q -B -Dstyle.color=never dependency:copy "-Dartifact=$artifact" "-DoutputDirectory=$out" ||
      missing "$artifact cannot be downloaded"
    # Not Maven's own unpacking: it cuts long names.
    tar -xzf "$out/pulsar-server-distribution-$PULSAR-bin.tar.gz" -C "$out"
    rm "$out/pulsar-server-distribution-$PULSAR-bin.tar.gz"
    touch "$home/.done"
  fi
  ln -sfn "apache-pulsar-$PULSAR" "$out/home"
}

demo() {
  if [[ -z ${PULSAR_URL:-} || -z ${PULSAR_ADMIN:-} ]]; then start; fi
  ${PYTHON:-.venv/bin/python} -m penstock demo --engine "$PULSAR_URL" --admin "$PULSAR_ADMIN" "$@"
}

# A standalone at free ports that numbers its entries, with its data in a folder that is removed at the end.
start() {
  if [[ ! -e $out/home ]]; then
    echo "there is no Pulsar to start: $(cat "$out/missing" 2>/dev/null || echo "scripts/pulsar.sh fetch has not run")" >&2
    exit 1
  fi
  folder=$(mktemp -d)
  trap leave EXIT
  trap 'exit 130' INT TERM
  local broker web bookie
  read -r broker web bookie < <(free_ports)
  local settings=(
    bindAddress=127.0.0.1 advertisedAddress=127.0.0.1 brokerServicePort="$broker" webServicePort="$web"
    brokerEntryMetadataInterceptors=org.apache.pulsar.common.intercept.AppendIndexMetadataInterceptor
    exposingBrokerEntryMetadataToClientEnabled=true
    numIOThreads=2 numHttpServerThreads=8 managedLedgerCacheSizeMB=32
    dbStorage_writeCacheMaxSizeMb=16 dbStorage_readAheadCacheMaxSizeMb=8
  )
  local names
  names=$(printf '%s\n' "${settings[@]}" | sed 's/=.*//' | paste -sd '|')
  { grep -Ev "^($names)=" "$out/home/conf/standalone.conf"; printf '%s\n' "${settings[@]}"; } >"$folder/standalone.conf"
  echo "Starting Apache Pulsar $PULSAR (standalone) …"
  set -m # a process group of its own, for all of it to be ended
  PULSAR_STANDALONE_CONF=$folder/standalone.conf PULSAR_LOG_ROOT_LEVEL=warn PULSAR_LOG_DIR=$folder \
    PULSAR_MEM="-Xms128m -Xmx768m -XX:MaxDirectMemorySize=512m" \
    "$out/home/bin/pulsar" standalone -nfw -nss --metadata-dir "$folder/metadata" --bookkeeper-dir "$folder/bookkeeper" \
    --bookkeeper-port "$bookie" >"$folder/output" 2>&1 </dev/null &
  pulsar=$!
  set +m
  PULSAR_URL=pulsar://127.0.0.1:$broker PULSAR_ADMIN=http://127.0.0.1:$web
  local until=$((SECONDS + READY_S))
  while [[ $(curl -fs -m 5 "$PULSAR_ADMIN/admin/v2/brokers/health") != ok ]]; do
    if ! kill -0 "$pulsar" 2>/dev/null || ((SECONDS > until)); then
      tail -n 30 "$folder/output" >&2
      echo "Pulsar does not start" >&2
      exit 1
    fi
    sleep 0.5
  done
}

leave() {
  kill -KILL -- "-$pulsar" 2>/dev/null || true # its data is thrown away: nothing has to be saved
  wait "$pulsar" 2>/dev/null || true
  rm -rf "$folder"
}

free_ports() {
  ${PYTHON:-.venv/bin/python} -c '
from socket import socket
held = [socket() for _ in range(3)]
for one in held:
    one.bind(("127.0.0.1", 0))
print(*(one.getsockname()[1] for one in held))'
}

case ${1:-} in
fetch) fetch ;;
demo) demo "${@:2}" ;;
*)
  echo "usage: $0 fetch | demo [argument …]" >&2
  exit 2
  ;;
esac
