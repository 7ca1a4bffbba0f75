{{/* The image of a component: dict "root" $ "own" .Values.agentImage */}}
{{- define "antrea.image" -}}
{{- $image := merge (dict) (.own | default dict) (.root.Values.image | default dict) -}}
{{- printf "%s:%s" $image.repository ($image.tag | default (print "v" .root.Chart.AppVersion)) -}}
{{- end -}}

{{- define "antrea.pullPolicy" -}}
{{- (merge (dict) (.own | default dict) (.root.Values.image | default dict)).pullPolicy | default "IfNotPresent" -}}
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

{{/* dict "own" .Values.agent.antreaOVS.securityContext "needs" (list "NET_RAW"): the capabilities of the values and those
     that are needed besides; no others. Without "needs" those that the container runtime gives stay. */}}
{{- define "antrea.securityContext" -}}
{{- if .own.privileged -}}
privileged: true
{{- else -}}
capabilities:
  {{- with .needs }}
  drop: [ALL]
  {{- end }}
  add: {{ concat .own.capabilities (.needs | default list) | uniq | toJson }}
{{- end -}}
{{- end -}}

{{/* The values' affinity; where they say nothing of other Pods, several replicas are on several Nodes, in several zones if
     there are. */}}
{{- define "antrea.controllerAffinity" -}}
{{- $affinity := deepCopy (.affinity | default dict) -}}
{{- if and (gt (int .replicas) 1) (not (hasKey $affinity "podAntiAffinity")) -}}
{{- $_ := set $affinity "podAntiAffinity" (include "antrea.controllersApart" . | fromYaml) -}}
{{- end -}}
{{- if $affinity -}}
{{ toYaml $affinity }}
{{- end -}}
{{- end -}}

{{- define "antrea.controllersApart" -}}
{{- $selector := dict "matchLabels" (dict "app" "antrea" "component" "antrea-controller") -}}
requiredDuringSchedulingIgnoredDuringExecution:
  - topologyKey: kubernetes.io/hostname
    labelSelector: {{- toYaml $selector | nindent 6 }}
preferredDuringSchedulingIgnoredDuringExecution:
  - weight: 100
    podAffinityTerm:
      topologyKey: topology.kubernetes.io/zone
      labelSelector: {{- toYaml $selector | nindent 8 }}
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

{{/* flowVisibility.enable stands for these values; where somebody said the opposite the installation stops. Each template that
     reads one of them includes this first. */}}
{{- define "antrea.flowVisibility" -}}
{{- if .Values.flowVisibility.enable -}}
{{- range $name := list "FlowExporter" -}}
{{- if and (hasKey $.Values.featureGates $name) (not (get $.Values.featureGates $name)) -}}
{{- fail (printf "featureGates.%s: is false, and flowVisibility.enable needs FlowExporter; leave one of both out" $name) -}}
{{- end -}}
{{- end -}}
{{- $_ := set .Values "featureGates" (merge (dict "FlowExporter" true) (.Values.featureGates | default dict)) -}}
{{- $_ := set .Values.flowExporter "enable" true -}}
{{- $_ := set .Values.flowAggregator "enable" true -}}
{{- $config := .Values.flowAggregator.config -}}
{{- if not ($config.clickHouse | default dict).enable -}}
{{- $_ := set $config "store" (merge (dict "enable" true) ($config.store | default dict)) -}}
{{- end -}}
{{- $_ := set $config "apiServer" (merge ($config.apiServer | default dict) (dict "authorizeUsers" true)) -}}
{{- $contents := $config.recordContents | default dict -}}
{{- if not (hasKey $contents "podNames") -}}
{{- $_ := set $config "recordContents" (merge (dict "podNames" true) $contents) -}}
{{- end -}}
{{- $_ := set $config "recordBufferSize" ($config.recordBufferSize | default 32768) -}}
{{- end -}}
{{- end -}}

{{/* How many Pods an eviction may take at once: minAvailable where it is set, else maxUnavailable. */}}
{{- define "antrea.disruption" -}}
{{- if eq (toString .minAvailable) "<nil>" -}}
maxUnavailable: {{ .maxUnavailable }}
{{- else -}}
minAvailable: {{ .minAvailable }}
{{- end -}}
{{- end -}}

{{/* What the values ask for and cannot be had stops the installation, not the Pods. */}}
{{- define "antrea.refuse" -}}
{{- include "antrea.flowVisibility" . -}}
{{- $wrong := include "antrea.refusals" . | fromYamlArray }}
{{- range $name := list "agentImage" "controllerImage" }}
{{- $repository := (get $.Values $name).repository | default "" }}
{{- if hasPrefix "antrea/antrea-" $repository }}
{{- $wrong = append $wrong (printf "%s.repository: %s is an image of Antrea, which does not run this chart; leave it out, or name an image of `make image`" $name $repository) }}
{{- end }}
{{- end }}
{{- with $wrong }}
{{- fail (printf "values that cannot work:\n  %s" (join "\n  " .)) }}
{{- end }}
{{- end -}}
