{{/* drawbridge.certificate names the Certificate of cert-manager that fills the webhook's Secret. */}}
{{- define "drawbridge.certificate" -}}
{{- printf "%s-webhook" (include "drawbridge.fullname" . | trunc 55 | trimSuffix "-") -}}
{{- end -}}

{{/* drawbridge.presentFailurePolicy is the failure policy to render. The manager sets the one that is
wanted when it has proven that the API server reaches it, so an upgrade keeps what is in the
cluster, and an installation begins with Ignore. With gitops.enabled, nobody but the chart sets it. */}}
{{- define "drawbridge.presentFailurePolicy" -}}
{{- $policy := "Ignore" -}}
{{- $present := lookup "admissionregistration.k8s.io/v1" "ValidatingWebhookConfiguration" "" (include "drawbridge.fullname" .) -}}
{{- range (get ($present | default dict) "webhooks") | default list -}}
{{- if eq .name "eviction-requests.drawbridge.dev" -}}
{{- $policy = .failurePolicy -}}
{{- end -}}
{{- end -}}
{{- if or .Values.gitops.enabled (hasKey .Values.featureGates "ManagedFailurePolicy" | and (not (get .Values.featureGates "ManagedFailurePolicy"))) -}}
{{- $policy = include "drawbridge.failurePolicy" . -}}
{{- end -}}
{{- $policy -}}
{{- end -}}

{{/* drawbridge.logConfig names the ConfigMap with the log level. */}}
{{- define "drawbridge.logConfig" -}}
{{- printf "%s-log" (include "drawbridge.fullname" . | trunc 59 | trimSuffix "-") -}}
{{- end -}}

{{/* drawbridge.metricsRole names the ClusterRole to ask who may read the metrics. */}}
{{- define "drawbridge.metricsRole" -}}
{{- printf "%s-metrics" (include "drawbridge.fullname" . | trunc 55 | trimSuffix "-") -}}
{{- end -}}

{{/* drawbridge.operationsArgs are the manager's arguments about certificates, metrics, gates and logs. */}}
{{- define "drawbridge.operationsArgs" -}}
- --certificate-settle={{ .Values.certificates.settle }}
{{- if eq .Values.certificates.mode "cert-manager" }}
- --cert-manager-certificate={{ include "drawbridge.certificate" . }}
{{- end }}
- --metrics-protected={{ .Values.metrics.protected }}
- --log-level-config={{ include "drawbridge.logConfig" . }}
{{- $gates := list }}
{{- range $name, $on := .Values.featureGates }}
{{- $gates = append $gates (printf "%s=%t" $name $on) }}
{{- end }}
{{- with $gates }}
- --feature-gates={{ join "," . }}
{{- end }}
{{- end -}}
