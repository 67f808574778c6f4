#!/usr/bin/env bash
# Check deploy/ with the tools of those who run it: helm, the schemas of Kubernetes, promtool, systemd-analyze.
#
# scripts/deploy-check.sh            checks; what is missing is fetched into build/deploy (helm is compiled: minutes, once)
# scripts/deploy-check.sh render     writes deploy/kubernetes/*/penstock.yaml again, from the chart
set -euo pipefail
cd "$(dirname "$0")/.."
readonly tools=$PWD/build/deploy
readonly helm_version=v3.19.0 schemas_version=1.37.0 kubernetes=1.31.0
readonly kubernetes_all=(1.25.0 1.31.0 1.37.0) # from the oldest that the chart takes on
readonly chart=deploy/helm/penstock
failed=0

say() { echo "== $*"; }
wrong() { echo "error: $*" >&2; failed=1; }

mkdir -p "$tools"
if [[ ! -x $tools/helm ]]; then
  say "compiling helm $helm_version"
  GOBIN=$tools go install "helm.sh/helm/v3/cmd/helm@$helm_version"
fi
render() { "$tools/helm" template penstock "$chart" --kube-version "$kubernetes" "$@" 2>"$tools/helm.log" || { cat "$tools/helm.log" >&2; return 1; }; }
# The plain manifests are the chart's, without the lines that say of which file they are.
plain() {
  echo "# Rendered from $chart by scripts/deploy-check.sh render. Change the chart, or values.yaml."
  # Pipelines run beside a server that is there.
  local only=()
  [[ $1 != */pipelines ]] || only=(-s templates/pipelines.yaml)
  render -f "$1/values.yaml" "${only[@]}" | grep -v '^# Source: '
}

readonly variants=(deploy/kubernetes/embedded deploy/kubernetes/cluster deploy/kubernetes/pipelines)
if [[ ${1:-} == render ]]; then
  for variant in "${variants[@]}"; do plain "$variant" >"$variant/penstock.yaml"; done
  exit
fi

say "helm lint"
"$tools/helm" lint --strict "$chart" 2>/dev/null || wrong "helm lint"

say "the plain manifests are the chart's"
for variant in "${variants[@]}"; do
  plain "$variant" | diff -u "$variant/penstock.yaml" - || wrong "$variant: scripts/deploy-check.sh render"
done

say "manifests by the schemas of Kubernetes ${kubernetes_all[*]}"
if [[ ! -x $tools/venv/bin/kubernetes-validate ]]; then
  python3 -m venv "$tools/venv"
  "$tools/venv/bin/pip" install --quiet --disable-pip-version-check "kubernetes-validate==$schemas_version"
fi
all=(--set tls.secretName=tls --set networkPolicy.enabled=true --set ingress.enabled=true --set ingress.tlsSecretName=tls --set dashboard.enabled=true)
render "${all[@]}" -f deploy/kubernetes/pipelines/values.yaml --set pipelines.state.claimName=state >"$tools/embedded.yaml"
render "${all[@]}" --set engine.url=kafka://kafka:9092 >"$tools/cluster.yaml"
# validate FILE: by every version's schemas; custom resources have none.
validate() {
  for version in "${kubernetes_all[@]}"; do
    "$tools/venv/bin/kubernetes-validate" --strict --quiet --no-warn -k "$version" "$1" || return 1
  done
}
for manifests in "${variants[@]/%//penstock.yaml}" "$tools/embedded.yaml" "$tools/cluster.yaml"; do
  validate "$manifests" || wrong "$manifests"
done
sed 's/readOnlyRootFilesystem/readOnlyRootFileSystem/' "$tools/embedded.yaml" >"$tools/wrong.yaml"
! validate "$tools/wrong.yaml" >/dev/null 2>&1 || wrong "the schemas let a wrong field pass"

say "what is not to be rendered"
! render --set auth.enabled=false >/dev/null 2>&1 || wrong "a chart without authentication has to say insecure=true"
! render --set 'pipelines.run.a.files={a.toml}' >/dev/null 2>&1 || wrong "pipelines without a place for their state"

if command -v promtool >/dev/null; then
  say "promtool"
  promtool check rules deploy/prometheus/penstock.rules.yml || wrong "rules"
  (cd deploy/prometheus && promtool test rules penstock.rules.test.yml) || wrong "tests of the rules"
  render --set prometheusRule.enabled=true -s templates/monitoring.yaml |
    python3 -c 'import sys, json; sys.path.insert(0, sys.argv[1]); import yaml; json.dump(yaml.safe_load(sys.stdin)["spec"], sys.stdout)' \
      "$(echo "$tools"/venv/lib/python*/site-packages)" >"$tools/rules.json"
  promtool check rules "$tools/rules.json" || wrong "the rules in the chart"
else
  wrong "promtool is missing (Debian's package prometheus)"
fi

if command -v systemd-analyze >/dev/null; then
  say "systemd-analyze"
  for unit in penstock.service penstock-pipeline@.service; do
    sed 's|/opt/penstock/bin/penstock|/bin/true|' "deploy/systemd/$unit" >"$tools/${unit/@/@sales}"
    systemd-analyze verify --man=no "$tools/${unit/@/@sales}" || wrong "$unit"
    systemd-analyze security --offline=true --threshold=20 --no-pager "$tools/${unit/@/@sales}" | tail -n 1 || wrong "$unit is too open"
  done
else
  wrong "systemd-analyze is missing"
fi
exit "$failed"
