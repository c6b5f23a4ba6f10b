{{/* The reference of an image: list of the root and the image's name. */}}
{{- define "tombolo.image" -}}
{{- with (index . 0).Values.images -}}
{{ printf "%s/%s:%s" .registry (index $ 1) .tag }}
{{- end -}}
{{- end }}

{{/* imagePullSecrets of a Pod, where there are any. */}}
{{- define "tombolo.pullSecrets" -}}
{{- with .Values.images.pullSecrets }}
      imagePullSecrets: {{- toYaml . | nindent 8 }}
{{- end }}
{{- end }}
