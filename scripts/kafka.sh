#!/usr/bin/env bash
# Apache Kafka on this machine, for tests.
#
# kafka.sh fetch: download its jars (broker and tools, 55 MB), and Apicurio, a schema registry (140 MB), once, into
#   tests/clusters/build/kafka. Where Java or Maven is missing, or nothing can be downloaded, the files `missing` and
#   `registry-missing` there say so, and the tests that need them are skipped with this line.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
out=$PWD/tests/clusters/build/kafka

readonly KAFKA=4.1.1
readonly SLF4J=1.7.36
readonly APICURIO=2.6.13.Final

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

# Run after `fetch`, which says what is missing for both.
fetch_registry() {
  local folder=$out/apicurio-$APICURIO
  rm -f "$out/registry-missing"
  [[ ! -e $out/missing ]] || { cp "$out/missing" "$out/registry-missing" && return; }
  if [[ ! -e $folder/.done ]]; then
    rm -rf "$out"/apicurio-*
    mkdir "$folder"
    if ! mvn -q -B -Dstyle.color=never org.apache.maven.plugins:maven-dependency-plugin:3.6.1:unpack \
      -Dartifact="io.apicurio:apicurio-registry-app:$APICURIO:tar.gz:all" -DoutputDirectory="$folder" -Dproject.basedir="$folder"; then
      rm -rf "$folder"
      echo "io.apicurio:apicurio-registry-app:$APICURIO cannot be downloaded" >"$out/registry-missing"
      echo "skipped: what needs a schema registry: $(cat "$out/registry-missing")" >&2
      return
    fi
    ln -s "apicurio-registry-app-$APICURIO-runner.jar" "$folder/runner.jar"
    rm -rf "$folder/target" # what the plugin remembers
    touch "$folder/.done"
  fi
  ln -sfn "apicurio-$APICURIO" "$out/registry"
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
fetch)
  (fetch) # which exits where something is missing
  fetch_registry
  ;;
*)
  echo "usage: $0 fetch" >&2
  exit 2
  ;;
esac
