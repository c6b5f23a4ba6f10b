{{/* What has no Namespace is the leader's of one Namespace: there may be leaders of several ClusterSets. */}}
{{- define "multicluster.prefix" -}}
{{ if eq .Values.role "leader" }}{{ .Release.Namespace }}-{{ end }}
{{- end }}

{{/* The reference of an image: list of the root and the image's name. Without a registry it is one that Nodes were given. */}}
{{- define "tombolo.image" -}}
{{- $images := (index . 0).Values.images -}}
{{- if not (or $images.registry (eq $images.pullPolicy "Never")) }}
{{- fail "images.registry is not set, and no registry has images of this name that are ours: publish them with `make push REGISTRY=host/path TAG=v1`, then set images.registry=host/path and images.tag=v1; on Nodes that were given the images of `make images` set images.pullPolicy=Never" }}
{{- end -}}
{{- $name := printf "%s/%s" (default "tombolo" $images.registry) (index . 1) -}}
{{- $digest := get $images.digests (index . 1) -}}
{{ if $digest }}{{ $name }}@{{ $digest }}{{ else }}{{ $name }}:{{ default (index . 0).Chart.AppVersion $images.tag }}{{ end }}
{{- end }}

{{- define "tombolo.pullPolicy" -}}
{{ default "IfNotPresent" .Values.images.pullPolicy }}
{{- end }}

{{/* Labels of every object, in addition to its own. Pods do not have them: another label would start all Pods again. */}}
{{- define "tombolo.labels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}, app.kubernetes.io/instance: {{ .Release.Name }}, app.kubernetes.io/part-of: tombolo, app.kubernetes.io/version: {{ .Chart.AppVersion | replace "+" "_" | quote }}, helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version | replace "+" "_" }}
{{- end }}

{{/* Settings of a workload's Pods, of its part of the value pods. */}}
{{- define "tombolo.annotations" }}
{{- with .annotations }}
      annotations: {{- toYaml . | nindent 8 }}
{{- end }}
{{- end }}

{{- define "tombolo.placement" }}
      priorityClassName: {{ .priorityClassName }}
      nodeSelector: {{- toYaml .nodeSelector | nindent 8 }}
{{- with .tolerations }}
      tolerations: {{- toYaml . | nindent 8 }}
{{- end }}
{{- with .affinity }}
      affinity: {{- toYaml . | nindent 8 }}
{{- end }}
{{- end }}

{{- define "tombolo.resources" }}
          resources: {{- toYaml . | nindent 12 }}
{{- end }}

{{/* More arguments, after others of a list. */}}
{{- define "tombolo.extraArgs" -}}
{{- range .extraArgs }}, {{ . | quote }}{{ end }}
{{- end }}

{{/* A budget for evictions: list of the root, name, Namespace, the label app, and the number of replicas. */}}
{{- define "tombolo.disruptionBudget" }}
{{- $root := index . 0 }}
{{- if and $root.Values.disruptionBudgets (gt (int (index . 4)) 1) }}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ index . 1 }}
  namespace: {{ index . 2 }}
  labels: {app: {{ index . 3 }}, component: {{ index . 1 }}, {{ include "tombolo.labels" $root }}}
spec:
  maxUnavailable: 1
  selector:
    matchLabels: {app: {{ index . 3 }}, component: {{ index . 1 }}}
{{- end }}
{{- end }}

{{/* The port of metrics.bindAddress; empty without metrics. */}}
{{- define "multicluster.metricsPort" -}}
{{- if ne .Values.metrics.bindAddress "0" }}{{ splitList ":" .Values.metrics.bindAddress | last }}{{ end }}
{{- end }}

{{/* Whether metrics.bindAddress can be reached from other machines: then readers need a token. */}}
{{- define "multicluster.metricsGuarded" -}}
{{- if and (include "multicluster.metricsPort" .) (not (regexMatch "^(127[.0-9]*|localhost|\\[::1\\]):" .Values.metrics.bindAddress)) }}true{{ end }}
{{- end }}
