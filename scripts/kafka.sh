#!/usr/bin/env bash
# Apache Kafka on this machine, for tests.
#
# kafka.sh fetch: download its jars (broker and tools, 55 MB), once, into tests/clusters/build/kafka. Where Java or Maven is
#   missing, or nothing can be downloaded, the file `missing` there says so, and the tests that need it are skipped with
#   this line.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
out=$PWD/tests/clusters/build/kafka

readonly KAFKA=4.1.1
readonly SLF4J=1.7.36

has() { command -v "$1" >/dev/null 2>&1; }
missing() {
  echo "$1" >"$out/missing"
  echo "skipped: what needs a Kafka: $1" >&2
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
  local jars=$out/kafka-$KAFKA
  if [[ ! -e $jars/.done ]]; then
    rm -rf "$out"/kafka-*
    mkdir "$jars"
    pom >"$jars/pom.xml"
    mvn -q -B -Dstyle.color=never -f "$jars/pom.xml" dependency:copy-dependencies -DoutputDirectory="$jars" ||
      missing "org.apache.kafka:kafka_2.13:$KAFKA cannot be downloaded"
    touch "$jars/.done"
  fi
  ln -sfn "kafka-$KAFKA" "$out/home"
}

# The broker, its tools, and something for both to log with.
pom() {
  cat <<XML
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>penstock</groupId><artifactId>kafka</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>$KAFKA</version></dependency>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId><version>$KAFKA</version></dependency>
    <dependency><groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>$SLF4J</version></dependency>
  </dependencies>
</project>
XML
}

case ${1:-} in
fetch) fetch ;;
*)
  echo "usage: $0 fetch" >&2
  exit 2
  ;;
esac
