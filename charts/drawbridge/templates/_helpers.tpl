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
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
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

{{/* drawbridge.native is true if the manager may look at lifecycle.k8s.io. */}}
{{- define "drawbridge.native" -}}
{{- and (ne .Values.native.controllers "Off") (dig "NativeAPI" true .Values.featureGates) -}}
{{- end -}}

{{/* drawbridge.exhausted is true if the manager may delete pods that a PodDisruptionBudget can never let go. */}}
{{- define "drawbridge.exhausted" -}}
{{- and .Values.budgets.enabled .Values.budgets.exhausted.enabled -}}
{{- end -}}

{{- define "drawbridge.certSecret" -}}
{{- printf "%s-webhook-cert" (include "drawbridge.fullname" .) -}}
{{- end -}}

{{/* drawbridge.clientConfig is the way to the manager's webhook: (list . "/path"). The CA is left
out: the manager puts it in, and an upgrade must not take it away. Nor must it take away the
token that the manager has put behind the path: what is in the cluster stays. With
gitops.enabled, the path is left out as well: a field that nobody renders is nobody's to reset. */}}
{{- define "drawbridge.clientConfig" -}}
{{- $root := index . 0 -}}
{{- $path := index . 1 -}}
{{- $url := printf "%s%s" $root.Values.webhook.url $path -}}
{{- $present := lookup "admissionregistration.k8s.io/v1" "ValidatingWebhookConfiguration" "" (include "drawbridge.fullname" $root) -}}
{{- range (get ($present | default dict) "webhooks") | default list -}}
{{- $way := .clientConfig -}}
{{- with $way.url -}}
{{- if hasPrefix (printf "%s/" $url) . -}}
{{- $url = . -}}
{{- end -}}
{{- end -}}
{{- with (get $way "service" | default dict).path -}}
{{- if hasPrefix (printf "%s/" $path) . -}}
{{- $path = . -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if $root.Values.webhook.url -}}
url: {{ $url | quote }}
{{- else -}}
service:
  namespace: {{ $root.Release.Namespace }}
  name: {{ include "drawbridge.webhookService" $root }}
  {{- if not $root.Values.gitops.enabled }}
  path: {{ $path }}
  {{- end }}
  port: 443
{{- end -}}
{{- end -}}

{{- define "drawbridge.image" -}}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- with .Values.image.digest }}@{{ . }}{{ end -}}
{{- end -}}

{{/* drawbridge.nanoseconds is how long a duration is. */}}
{{- define "drawbridge.nanoseconds" -}}
{{- $start := toDate "2006-01-02" "2000-01-01" -}}
{{- sub (mustDateModify . $start).UnixNano $start.UnixNano -}}
{{- end -}}

{{/* drawbridge.roleName names a role of the manager for one of its parts: (list . "part"). */}}
{{- define "drawbridge.roleName" -}}
{{- $part := index . 1 -}}
{{- printf "%s-%s" (include "drawbridge.fullname" (index . 0) | trunc (int (sub 62 (len $part))) | trimSuffix "-") $part -}}
{{- end -}}

{{/* drawbridge.bind binds the cluster role of a part to the manager's account: (list . "part"). */}}
{{- define "drawbridge.bind" -}}
{{- $root := index . 0 -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: {{ include "drawbridge.roleName" . }}
  labels:
    {{- include "drawbridge.labels" $root | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: {{ include "drawbridge.roleName" . }}
subjects:
  - kind: ServiceAccount
    namespace: {{ $root.Release.Namespace }}
    name: {{ include "drawbridge.serviceAccountName" $root }}
{{- end -}}

{{/* drawbridge.bindHere binds the role of a part in our own namespace: (list . "part"). */}}
{{- define "drawbridge.bindHere" -}}
{{- $root := index . 0 -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: {{ include "drawbridge.roleName" . }}
  namespace: {{ $root.Release.Namespace }}
  labels:
    {{- include "drawbridge.labels" $root | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: {{ include "drawbridge.roleName" . }}
subjects:
  - kind: ServiceAccount
    namespace: {{ $root.Release.Namespace }}
    name: {{ include "drawbridge.serviceAccountName" $root }}
{{- end -}}
