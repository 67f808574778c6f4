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

readonly NAME=pulsar
readonly PULSAR=4.0.8
# shellcheck source=scripts/brokers.sh
source scripts/brokers.sh

fetch() {
  prepare_fetch
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
  prepare_start
  local service web bookie
  read -r service web bookie < <(free_ports 3)
  local settings=(
    bindAddress=127.0.0.1 advertisedAddress=127.0.0.1 brokerServicePort="$service" webServicePort="$web"
    brokerEntryMetadataInterceptors=org.apache.pulsar.common.intercept.AppendIndexMetadataInterceptor
    exposingBrokerEntryMetadataToClientEnabled=true
    numIOThreads=2 numHttpServerThreads=8 managedLedgerCacheSizeMB=32
    dbStorage_writeCacheMaxSizeMb=16 dbStorage_readAheadCacheMaxSizeMb=8
  )
  local names
  names=$(printf '%s\n' "${settings[@]}" | sed 's/=.*//' | paste -sd '|')
  { grep -Ev "^($names)=" "$out/home/conf/standalone.conf"; printf '%s\n' "${settings[@]}"; } >"$folder/standalone.conf"
  echo "Starting Apache Pulsar $PULSAR (standalone) …"
  in_background env PULSAR_STANDALONE_CONF="$folder/standalone.conf" PULSAR_LOG_ROOT_LEVEL=warn PULSAR_LOG_DIR="$folder" \
    PULSAR_MEM="-Xms128m -Xmx768m -XX:MaxDirectMemorySize=512m" \
    "$out/home/bin/pulsar" standalone -nfw -nss --metadata-dir "$folder/metadata" --bookkeeper-dir "$folder/bookkeeper" \
    --bookkeeper-port "$bookie"
  PULSAR_URL=pulsar://127.0.0.1:$service PULSAR_ADMIN=http://127.0.0.1:$web
  wait_until healthy
}

healthy() { [[ $(curl -fs -m 5 "$PULSAR_ADMIN/admin/v2/brokers/health") == ok ]]; }

case ${1:-} in
fetch) fetch ;;
demo) demo "${@:2}" ;;
*)
  echo "usage: $0 fetch | demo [argument …]" >&2
  exit 2
  ;;
esac
