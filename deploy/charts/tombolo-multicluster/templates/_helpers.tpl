{{/* What has no Namespace is the leader's of one Namespace: there may be leaders of several ClusterSets. */}}
{{- define "multicluster.prefix" -}}
{{ if eq .Values.role "leader" }}{{ .Release.Namespace }}-{{ end }}
{{- end }}
