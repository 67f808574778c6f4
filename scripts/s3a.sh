#!/usr/bin/env bash
# Hadoop's connector of S3 for Spark, for tests.
#
# s3a.sh fetch: download its jars, once, into tests/clusters/build/s3a (14 MB): the modules of Amazon's SDK that it uses, in place
#   of the bundle of all (690 MB). Where Java or Maven is missing, or nothing can be downloaded, the file `missing` there says so,
#   and the tests that need it are skipped with this line.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
out=$PWD/tests/clusters/build/s3a

readonly NAME="connector of S3"
readonly HADOOP=3.5.0 # Spark 4.3's
readonly SDK=2.35.4
# shellcheck source=scripts/brokers.sh
source scripts/brokers.sh

fetch() {
  prepare_fetch
  local jars=$out/s3a-$HADOOP
  if [[ ! -e $jars/.done ]]; then
    rm -rf "$out"/s3a-*
    mkdir "$jars"
    pom >"$jars/pom.xml"
    mvn -q -B -Dstyle.color=never -f "$jars/pom.xml" dependency:copy-dependencies -DoutputDirectory="$jars" \
      -DexcludeGroupIds=io.netty,org.slf4j,commons-logging,org.wildfly.openssl || # Spark has its own
      missing "org.apache.hadoop:hadoop-aws:$HADOOP cannot be downloaded"
    touch "$jars/.done"
  fi
  ln -sfn "s3a-$HADOOP" "$out/home"
}

pom() {
  cat <<XML
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>penstock</groupId><artifactId>s3a</artifactId><version>1</version><packaging>pom</packaging>
  <dependencyManagement><dependencies>
    <dependency>
      <groupId>software.amazon.awssdk</groupId><artifactId>bom</artifactId><version>$SDK</version>
      <type>pom</type><scope>import</scope>
    </dependency>
  </dependencies></dependencyManagement>
  <dependencies>
    <dependency>
      <groupId>org.apache.hadoop</groupId><artifactId>hadoop-aws</artifactId><version>$HADOOP</version>
      <exclusions><exclusion>
        <groupId>software.amazon.awssdk</groupId><artifactId>bundle</artifactId>
      </exclusion></exclusions>
    </dependency>
    <dependency><groupId>software.amazon.awssdk</groupId><artifactId>s3-transfer-manager</artifactId></dependency>
    <dependency><groupId>software.amazon.awssdk</groupId><artifactId>sts</artifactId></dependency>
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
