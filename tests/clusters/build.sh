#!/usr/bin/env bash
# Fetch the brokers that the tests of clusters start: `build.sh pulsar`.
#
# Everything is in tests/clusters/build/BROKER. Where Java or Maven is missing, or nothing can be downloaded, the file
# `missing` there says so, and the tests of that broker are skipped with this line.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
broker=$1
out=$PWD/build/$broker
mkdir -p "$out"
rm -f "$out/missing"

readonly PULSAR=4.0.8

has() { command -v "$1" >/dev/null 2>&1; }
missing() {
  echo "$1" >"$out/missing"
  echo "skipped: the tests before $broker: $1" >&2
  exit 0
}
# at_least 17 21.0.1: the second version is as new as the first.
at_least() { printf '%s\n%s\n' "$1" "$2" | sort -C -V; }
java_version() { java -version 2>&1 | sed -n '1s/.*version "\([0-9.]*\).*/\1/p'; }

has java && has mvn || missing "java (17 or later) and mvn are needed"
at_least 17 "$(java_version)" || missing "java 17 or later is needed"

case $broker in
pulsar)
  home=$out/apache-pulsar-$PULSAR
  if [[ ! -e $home/.done ]]; then
    rm -rf "$out"/apache-pulsar-*
    artifact=org.apache.pulsar:pulsar-server-distribution:$PULSAR:tar.gz:bin
    mvn -q -B -Dstyle.color=never dependency:copy "-Dartifact=$artifact" "-DoutputDirectory=$out" ||
      missing "$artifact cannot be downloaded"
    # Not Maven's own unpacking: it cuts long names.
    tar -xzf "$out/pulsar-server-distribution-$PULSAR-bin.tar.gz" -C "$out"
    rm "$out/pulsar-server-distribution-$PULSAR-bin.tar.gz"
    touch "$home/.done"
  fi
  ln -sfn "apache-pulsar-$PULSAR" "$out/home"
  ;;
*)
  echo "usage: $0 pulsar" >&2
  exit 2
  ;;
esac
