{{/* The image of a component: dict "root" $ "own" .Values.agentImage */}}
{{- define "antrea.image" -}}
{{- $image := .root.Values.image | default .own -}}
{{- $version := .root.Chart.AppVersion -}}
{{- printf "%s:%s" $image.repository ($image.tag | default (eq $version "latest" | ternary $version (print "v" $version))) -}}
{{- end -}}

{{- define "antrea.pullPolicy" -}}
{{- (.root.Values.image | default .own).pullPolicy | default "IfNotPresent" -}}
{{- end -}}

{{/* A gate of the configuration: said by the values, else shown with what it is without them.
     dict "gates" .Values.featureGates "name" "Egress" "default" true */}}
{{- define "antrea.gate" -}}
{{- if hasKey .gates .name -}}
{{ printf "  %s: %v" .name (get .gates .name) }}
{{- else -}}
{{ printf "#  %s: %v" .name .default }}
{{- end -}}
{{- end -}}

{{- define "antrea.environment" -}}
{{- range $name, $value := . }}
- name: {{ $name | quote }}
  value: {{ $value | quote }}
{{- end }}
{{- end -}}

{{- define "antrea.securityContext" -}}
{{- if .privileged -}}
privileged: true
{{- else -}}
capabilities:
  add: {{ .capabilities | toJson }}
{{- end -}}
{{- end -}}

{{- define "antrea.pod" -}}
- name: POD_NAME
  valueFrom:
    fieldRef:
      fieldPath: metadata.name
- name: POD_NAMESPACE
  valueFrom:
    fieldRef:
      fieldPath: metadata.namespace
- name: NODE_NAME
  valueFrom:
    fieldRef:
      fieldPath: spec.nodeName
{{- end -}}

{{/* Arguments of a program that writes log files: dict "root" $ "file" "antrea-agent.conf" "own" .Values.agent.antreaAgent */}}
{{- define "antrea.arguments" -}}
- --config=/etc/antrea/{{ .file }}
- --logtostderr=false
- --log_dir=/var/log/antrea
- --alsologtostderr
- --log_file_max_size={{ .own.logFileMaxSize }}
- --log_file_max_num={{ .own.logFileMaxNum }}
{{- with .root.Values.logVerbosity }}
- --v={{ . }}
{{- end }}
{{- with .own.extraArgs }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* What the values ask for and cannot be had stops the installation, not the Pods. */}}
{{- define "antrea.refuse" -}}
{{- range $name, $_ := .Values.featureGates }}
{{- if not (has $name (include "antrea.gates" $ | fromYamlArray)) }}
{{- fail (printf "featureGates.%s: unrecognized feature gate" $name) }}
{{- end }}
{{- end }}
{{- if and (eq .Values.trafficEncapMode "networkPolicyOnly") (ne .Values.trafficEncryptionMode "none") }}
{{- fail "trafficEncryptionMode: networkPolicyOnly mode encrypts nothing; leave it `none`" }}
{{- end }}
{{- end -}}
