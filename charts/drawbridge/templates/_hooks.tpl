{{/* drawbridge.hooksArgs are the manager's arguments about EvacuationHooks. */}}
{{- define "drawbridge.hooksArgs" -}}
- --hooks={{ .Values.hooks.enabled }}
{{- if .Values.hooks.enabled }}
- --hooks-max-concurrent={{ int64 .Values.hooks.maxConcurrent }}
- --hooks-max-concurrent-per-namespace={{ int64 .Values.hooks.maxConcurrentPerNamespace }}
- --hooks-max-total={{ .Values.hooks.maxTotal }}
- --hooks-exec={{ .Values.hooks.exec.enabled }}
- --hooks-http={{ .Values.hooks.http.enabled }}
{{- end }}
{{- end -}}

{{/* drawbridge.jobVerbs are what policies.rules and presets let the manager do to Jobs,
separated by commas: migrations may be Jobs, too. */}}
{{- define "drawbridge.jobVerbs" -}}
{{- $rules := .Values.policies.rules -}}
{{- range $preset := splitList "," (include "drawbridge.presets" .) -}}
{{- if $preset -}}
{{- $rules = concat $rules ((include "drawbridge.presetFile" (list $ $preset "rbac.yaml") | fromYaml).rules | default list) -}}
{{- end -}}
{{- end -}}
{{- $verbs := list -}}
{{- range $rules -}}
{{- if and (or (has "batch" .apiGroups) (has "*" .apiGroups)) (or (has "jobs" .resources) (has "*" .resources)) -}}
{{- $verbs = concat $verbs .verbs -}}
{{- end -}}
{{- end -}}
{{- uniq $verbs | join "," -}}
{{- end -}}
