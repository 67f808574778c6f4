{{- define "penstock.name" -}}
{{- if contains "penstock" .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}{{ else }}{{ printf "%s-penstock" .Release.Name | trunc 50 | trimSuffix "-" }}{{ end -}}
{{- end -}}

{{- define "penstock.selector" -}}
app.kubernetes.io/name: penstock
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "penstock.labels" -}}
{{ include "penstock.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end -}}

{{- /* The sections of the configuration: the chart's own values, and `config` over them. */ -}}
{{- define "penstock.sections" -}}
{{- $own := dict "log" (dict "format" "json") -}}
{{- if .Values.auth.enabled -}}
{{- $_ := set $own "auth" (dict "enabled" true "token_secret_key_file" "/etc/penstock/auth/secret.key" "super_users" .Values.auth.superUsers) -}}
{{- else if .Values.insecure -}}
{{- $_ := set $own "auth" (dict "insecure" true) -}}
{{- else -}}
{{- fail "auth.enabled is false: anyone who reaches the pods could do everything. Say insecure=true where that is meant" -}}
{{- end -}}
{{- if .Values.engine.url -}}
{{- $_ := set $own "engine" (dict "url" .Values.engine.url "admin_url" .Values.engine.adminUrl) -}}
{{- end -}}
{{- if .Values.tls.secretName -}}
{{- $_ := set $own "tls" (dict "cert_file" "/etc/penstock/tls/tls.crt" "key_file" "/etc/penstock/tls/tls.key") -}}
{{- $_ := set $own "http" (dict "tls_listen" "0.0.0.0:8443") -}}
{{- $_ := set $own "pulsar" (dict "tls_listen" "0.0.0.0:6651") -}}
{{- end -}}
{{- mergeOverwrite $own (deepCopy .Values.config) | toJson -}}
{{- end -}}

{{- /* A value in TOML. Texts, numbers, booleans and lists of them are as in JSON; `toToml` makes floats of all numbers. */ -}}
{{- define "penstock.value" -}}
{{- if kindIs "map" . -}}
{ {{- range $at, $key := keys . | sortAlpha }}{{ if $at }}, {{ end }}{{ $key | toJson }} = {{ include "penstock.value" (index $ $key) }}{{ end -}} }
{{- else -}}
{{- toJson . -}}
{{- end -}}
{{- end -}}

{{- define "penstock.toml" -}}
{{- range $section, $values := include "penstock.sections" . | fromJson }}
[{{ $section }}]
{{- range $key, $value := $values }}
{{ $key }} = {{ include "penstock.value" $value }}
{{- end }}
{{ end -}}
{{- end -}}
