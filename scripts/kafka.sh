#!/usr/bin/env bash
# Apache Kafka on this machine, for tests and for the demo.
#
# kafka.sh fetch: download its jars (broker and tools, 55 MB), Spark's connector to it (10 MB), and Apicurio, a schema registry
#   (140 MB), once, into tests/clusters/build/kafka. Where Java or Maven is missing, or nothing can be downloaded, the files `missing` and
#   `registry-missing` there say so, and the tests that need them are skipped with this line.
# kafka.sh demo [argument of `penstock demo` …]: run the demo through a broker of its own, which is started for it and ended
#   with it; through the cluster that KAFKA_URL names, where it is set.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
out=$PWD/tests/clusters/build/kafka

readonly NAME=kafka
readonly KAFKA=4.1.1
readonly SLF4J=1.7.36
readonly CONNECTOR=4.2.0 # and the versions of what it needs beside Spark
readonly CONNECTOR_CLIENTS=3.9.2
readonly CONNECTOR_POOL=2.13.1
readonly APICURIO=2.6.13.Final
# shellcheck source=scripts/brokers.sh
source scripts/brokers.sh

fetch() {
  prepare_fetch
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

# Run after `fetch`, which says what is missing for all. Tests without it are skipped.
fetch_connector() {
  local jars=$out/connector-$CONNECTOR
  [[ ! -e $out/missing ]] || return 0
  if [[ ! -e $jars/.done ]]; then
    rm -rf "$out"/connector-*
    mkdir "$jars"
    connector_pom >"$jars/pom.xml"
    if ! mvn -q -B -Dstyle.color=never -f "$jars/pom.xml" dependency:copy-dependencies -DexcludeTransitive=true \
      -DoutputDirectory="$jars"; then
      rm -rf "$jars"
      echo "skipped: Spark's Kafka connector $CONNECTOR cannot be downloaded" >&2
      return
    fi
    touch "$jars/.done"
  fi
  ln -sfn "connector-$CONNECTOR" "$out/connector"
}

connector_pom() {
  cat <<XML
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>penstock</groupId><artifactId>connector</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>
    <dependency><groupId>org.apache.spark</groupId><artifactId>spark-sql-kafka-0-10_2.13</artifactId><version>$CONNECTOR</version></dependency>
    <dependency><groupId>org.apache.spark</groupId><artifactId>spark-token-provider-kafka-0-10_2.13</artifactId><version>$CONNECTOR</version></dependency>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-clients</artifactId><version>$CONNECTOR_CLIENTS</version></dependency>
    <dependency><groupId>org.apache.commons</groupId><artifactId>commons-pool2</artifactId><version>$CONNECTOR_POOL</version></dependency>
  </dependencies>
</project>
XML
}

# Run after `fetch`, too.
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

demo() {
  if [[ -z ${KAFKA_URL:-} ]]; then start; fi
  ${PYTHON:-.venv/bin/python} -m penstock demo --engine "$KAFKA_URL" "$@"
}

# One node at free ports, with its data in a folder that is removed at the end.
start() {
  prepare_start
  local port control
  read -r port control < <(free_ports 2)
  local address=127.0.0.1:$port listeners=PLAINTEXT://127.0.0.1:$port,CONTROLLER://127.0.0.1:$control
  local settings=(
    process.roles=broker,controller node.id=1 controller.quorum.bootstrap.servers="127.0.0.1:$control"
    listeners="$listeners" advertised.listeners="$listeners"
    controller.listener.names=CONTROLLER inter.broker.listener.name=PLAINTEXT
    listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
    log.dirs="$folder/logs" offsets.topic.replication.factor=1 offsets.topic.num.partitions=4
    transaction.state.log.replication.factor=1 transaction.state.log.min.isr=1 transaction.state.log.num.partitions=4
    group.initial.rebalance.delay.ms=0 auto.create.topics.enable=false
  )
  printf '%s\n' "${settings[@]}" >"$folder/server.properties"
  echo "Starting Apache Kafka $KAFKA (one node) …"
  java -Xmx256m -cp "$out/home/*" kafka.tools.StorageTool format --standalone -t MkU3OEVBNTcwNTJENDM2Qk \
    -c "$folder/server.properties" >"$folder/output" 2>&1 || { cat "$folder/output" >&2; exit 1; }
  in_background java -Xms128m -Xmx768m -cp "$out/home/*" kafka.Kafka "$folder/server.properties"
  KAFKA_URL=kafka://$address
  wait_until listens "$port"
}

listens() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

case ${1:-} in
fetch)
  (fetch) # which exits where something is missing
  fetch_connector
  fetch_registry
  ;;
demo) demo "${@:2}" ;;
*)
  echo "usage: $0 fetch | demo [argument …]" >&2
  exit 2
  ;;
esac
