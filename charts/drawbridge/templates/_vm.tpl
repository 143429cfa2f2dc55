{{/* drawbridge.presets are the names of the presets that are switched on, separated by commas. */}}
{{- define "drawbridge.presets" -}}
{{- $presets := list -}}
{{- if hasKey .Values.vm.kubevirt "createMigrations" -}}
{{- fail "vm.kubevirt.createMigrations is gone: Drawbridge always creates the migrations, because KubeVirt discards marks that are not its own. Remove the value (helm upgrade --reuse-values brings it back, --reset-then-reuse-values does not); its limits are vm.kubevirt.parallelPerCluster and vm.kubevirt.parallelOutboundPerNode, and docs/guides/kubevirt.md says what changes" -}}
{{- end -}}
{{- if .Values.vm.kubevirt.enabled -}}
{{- $presets = append $presets "kubevirt" -}}
{{- end -}}
{{- if .Values.vm.strimzi.enabled -}}
{{- $presets = append $presets "strimzi" -}}
{{- end -}}
{{- join "," $presets -}}
{{- end -}}

{{/* drawbridge.preset names the objects of a preset: (list . "name"). */}}
{{- define "drawbridge.preset" -}}
{{- printf "%s-%s" (include "drawbridge.fullname" (index . 0) | trunc 38 | trimSuffix "-") (index . 1) -}}
{{- end -}}

{{/* drawbridge.presetNames are the names of the ConfigMaps, separated by commas. */}}
{{- define "drawbridge.presetNames" -}}
{{- $names := list -}}
{{- range $preset := splitList "," (include "drawbridge.presets" .) -}}
{{- if $preset -}}
{{- $names = append $names (include "drawbridge.preset" (list $ $preset)) -}}
{{- end -}}
{{- end -}}
{{- join "," $names -}}
{{- end -}}

{{/* drawbridge.presetObjects are the objects of a preset: (list . "name"). */}}
{{- define "drawbridge.presetObjects" -}}
{{- $root := index . 0 -}}
{{- $preset := index . 1 -}}
{{- $policies := list $preset -}}
{{- if ne $preset "strimzi" -}}
{{- $policies = append $policies "kubevirt-hotplug" -}}
{{- end -}}
{{- range $name := $policies }}
{{- $policy := $root.Files.Get (printf "files/presets/%s.yaml" $name) | fromYaml }}
{{- $_ := set $policy.metadata "labels" (include "drawbridge.labels" $root | fromYaml) }}
{{- if eq $name "kubevirt" }}
{{- $values := $root.Values.vm.kubevirt }}
{{- $_ := set $policy.spec "onFailure" $values.onFailure }}
{{- $_ := set $policy.spec.migration "retryLimit" (int $values.retryLimit) }}
{{- with $values.deadline }}
{{- $_ := set $policy.spec "deadline" . }}
{{- end }}
{{- $_ := set $policy.spec.migration "parallelPerCluster" (int $values.parallelPerCluster) }}
{{- $_ := set $policy.spec.migration "parallelOutboundPerNode" (int $values.parallelOutboundPerNode) }}
{{- end }}
{{ toYaml $policy }}
---
{{- end }}
{{- if eq $preset "strimzi" }}
apiVersion: drawbridge.dev/v1alpha1
kind: EvictionInterceptor
metadata:
  name: strimzi.drawbridge.dev
  labels:
    {{- include "drawbridge.labels" $root | nindent 4 }}
spec:
  podSelector:
    matchExpressions:
      - key: strimzi.io/kind
        operator: In
        values: [Kafka, KafkaConnect, KafkaMirrorMaker2]
  matchConditions:
    - name: rolled-by-strimzi
      expression: has(object.metadata.ownerReferences) && object.metadata.ownerReferences.exists(o, o.kind == 'StrimziPodSet')
  serviceAccounts:
    - namespace: {{ $root.Release.Namespace }}
      name: {{ include "drawbridge.serviceAccountName" $root }}
{{- else }}
apiVersion: drawbridge.dev/v1alpha1
kind: EvictionInterceptor
metadata:
  name: kubevirt.drawbridge.dev
  labels:
    {{- include "drawbridge.labels" $root | nindent 4 }}
spec:
  podSelector:
    matchExpressions:
      - key: kubevirt.io
        operator: In
        values: [virt-launcher, hotplug-disk]
  matchConditions:
    # A launcher without it has no virtual machine.
    - name: has-a-virtual-machine
      expression: >-
        object.metadata.labels['kubevirt.io'] != 'virt-launcher' ||
        (has(object.metadata.annotations) && 'kubevirt.io/domain' in object.metadata.annotations)
    - name: has-an-owner
      expression: >-
        object.metadata.labels['kubevirt.io'] != 'hotplug-disk' ||
        (has(object.metadata.ownerReferences) && object.metadata.ownerReferences.size() == 1 && object.metadata.ownerReferences[0].kind == 'Pod')
  priority: {{ int $root.Values.vm.kubevirt.priority }}
  guard: {{ $root.Values.vm.kubevirt.guard }}
  serviceAccounts:
    - namespace: {{ $root.Release.Namespace }}
      name: {{ include "drawbridge.serviceAccountName" $root }}
{{- end }}
{{- end -}}
