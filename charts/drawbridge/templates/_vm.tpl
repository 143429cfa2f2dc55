{{/* A preset is a folder of presets/. What is in it, the guide on VM platforms says ("Add a preset");
no template names one. Lists are text with commas: templates return nothing else. */}}

{{/* drawbridge.allPresets are the names of the presets that there are. */}}
{{- define "drawbridge.allPresets" -}}
{{- $names := list -}}
{{- range $path, $_ := .Files.Glob "presets/*/*" -}}
{{- $names = append $names (dir $path | base) -}}
{{- end -}}
{{- uniq $names | sortAlpha | join "," -}}
{{- end -}}

{{/* drawbridge.presets are the names of those that are switched on. */}}
{{- define "drawbridge.presets" -}}
{{- $on := list -}}
{{- range $name := splitList "," (include "drawbridge.allPresets" .) -}}
{{- if (get ($.Values.vm | default dict) $name | default dict).enabled -}}
{{- $on = append $on $name -}}
{{- end -}}
{{- end -}}
{{- join "," $on -}}
{{- end -}}

{{/* drawbridge.preset names the objects of a preset: (list . "name"). */}}
{{- define "drawbridge.preset" -}}
{{- printf "%s-%s" (include "drawbridge.fullname" (index . 0) | trunc 38 | trimSuffix "-") (index . 1) -}}
{{- end -}}

{{/* drawbridge.presetNames are the names of the ConfigMaps. */}}
{{- define "drawbridge.presetNames" -}}
{{- $names := list -}}
{{- range $preset := splitList "," (include "drawbridge.presets" .) -}}
{{- if $preset -}}
{{- $names = append $names (include "drawbridge.preset" (list $ $preset)) -}}
{{- end -}}
{{- end -}}
{{- join "," $names -}}
{{- end -}}

{{/* drawbridge.presetFile is a file that each preset must have: (list . "name" "file"). */}}
{{- define "drawbridge.presetFile" -}}
{{- $path := printf "presets/%s/%s" (index . 1) (index . 2) -}}
{{- $content := (index . 0).Files.Get $path | fromYaml -}}
{{- with $content.Error -}}
{{- fail (printf "%s: %s" $path .) -}}
{{- end -}}
{{- if not $content -}}
{{- fail (printf "%s is missing or empty" $path) -}}
{{- end -}}
{{- toYaml $content -}}
{{- end -}}

{{/* drawbridge.presetSettings is the preset.yaml of a preset, which it may lack: (list . "name"). */}}
{{- define "drawbridge.presetSettings" -}}
{{- $root := index . 0 -}}
{{- $preset := index . 1 -}}
{{- if $root.Files.Get (printf "presets/%s/preset.yaml" $preset) -}}
{{- include "drawbridge.presetFile" (list $root $preset "preset.yaml") -}}
{{- end -}}
{{- end -}}

{{/* drawbridge.presetPolicies are the files with the policies of a preset: (list . "name"). */}}
{{- define "drawbridge.presetPolicies" -}}
{{- $files := list "policy.yaml" -}}
{{- range $path, $_ := (index . 0).Files.Glob (printf "presets/%s/policy-*.yaml" (index . 1)) -}}
{{- $files = append $files (base $path) -}}
{{- end -}}
{{- join "," $files -}}
{{- end -}}

{{/* drawbridge.setField sets a field of an object: (list OBJECT "a.path.of.fields" VALUE). */}}
{{- define "drawbridge.setField" -}}
{{- $at := index . 0 -}}
{{- $path := splitList "." (index . 1) -}}
{{- range initial $path -}}
{{- if not (hasKey $at .) -}}
{{- $_ := set $at . dict -}}
{{- end -}}
{{- $at = get $at . -}}
{{- end -}}
{{- $_ := set $at (last $path) (index . 2) -}}
{{- end -}}

{{/* drawbridge.presetObjects are the objects of a preset: (list . "name"). A value that is
empty leaves the field as the file has it. */}}
{{- define "drawbridge.presetObjects" -}}
{{- $root := index . 0 -}}
{{- $preset := index . 1 -}}
{{- $settings := include "drawbridge.presetSettings" . | fromYaml -}}
{{- $values := get $root.Values.vm $preset -}}
{{- range $file := append (splitList "," (include "drawbridge.presetPolicies" .)) "registration.yaml" }}
{{- $object := include "drawbridge.presetFile" (list $root $preset $file) | fromYaml }}
{{- $_ := set $object.metadata "labels" (include "drawbridge.labels" $root | fromYaml) }}
{{- range $value, $field := get ($settings.values | default dict) $file | default dict }}
{{- $to := get $values $value }}
{{- if not (or (kindIs "invalid" $to) (eq (toString $to) "")) }}
{{- include "drawbridge.setField" (list $object $field $to) }}
{{- end }}
{{- end }}
{{- if eq $file "registration.yaml" }}
{{- $account := dict "namespace" $root.Release.Namespace "name" (include "drawbridge.serviceAccountName" $root) }}
{{- include "drawbridge.setField" (list $object "spec.serviceAccounts" (list $account)) }}
{{- end }}
{{ toYaml $object }}
---
{{- end }}
{{- end -}}

{{/* drawbridge.deschedulerExcept selects the pods whose platform sets the descheduler's mark by
itself. The manager takes one selector. */}}
{{- define "drawbridge.deschedulerExcept" -}}
{{- $from := "" -}}
{{- $selector := "" -}}
{{- range $preset := splitList "," (include "drawbridge.presets" .) -}}
{{- with (include "drawbridge.presetSettings" (list $ $preset) | fromYaml).deschedulerExcept -}}
{{- if and $selector (ne $selector .) -}}
{{- fail (printf "the presets %s and %s both set deschedulerExcept, and the manager takes one selector: set vm.%s.enabled=false, or give both the same" $from $preset $preset) -}}
{{- end -}}
{{- $from = $preset -}}
{{- $selector = . -}}
{{- end -}}
{{- end -}}
{{- $selector -}}
{{- end -}}
