{{/* drawbridge.fullname names the objects of the release; it is the release's name when that says drawbridge already. */}}
{{- define "drawbridge.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "drawbridge.selectorLabels" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "drawbridge.labels" -}}
{{ include "drawbridge.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "drawbridge.serviceAccountName" -}}
{{- default (include "drawbridge.fullname" .) .Values.serviceAccount.name -}}
{{- end -}}

{{/* drawbridge.username is the user name the API server sees when the manager calls. */}}
{{- define "drawbridge.username" -}}
{{- printf "system:serviceaccount:%s:%s" .Release.Namespace (include "drawbridge.serviceAccountName" .) -}}
{{- end -}}

{{- define "drawbridge.webhookService" -}}
{{- printf "%s-webhook" (include "drawbridge.fullname" . | trunc 55 | trimSuffix "-") -}}
{{- end -}}

{{- define "drawbridge.surge" -}}
{{- printf "%s-surge" (include "drawbridge.fullname" . | trunc 57 | trimSuffix "-") -}}
{{- end -}}

{{- define "drawbridge.certSecret" -}}
{{- printf "%s-webhook-cert" (include "drawbridge.fullname" .) -}}
{{- end -}}

{{/* drawbridge.clientConfig is the way to the manager's webhook: (list . "/path"). The CA is left
out: the manager puts it in, and an upgrade must not take it away. */}}
{{- define "drawbridge.clientConfig" -}}
{{- $root := index . 0 -}}
{{- $path := index . 1 -}}
{{- if $root.Values.webhook.url -}}
url: {{ printf "%s%s" $root.Values.webhook.url $path | quote }}
{{- else -}}
service:
  namespace: {{ $root.Release.Namespace }}
  name: {{ include "drawbridge.webhookService" $root }}
  path: {{ $path }}
  port: 443
{{- end -}}
{{- end -}}
