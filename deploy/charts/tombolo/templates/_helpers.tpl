{{/* The reference of an image: list of the root and the image's name. Without a registry it is one that Nodes were given. */}}
{{- define "tombolo.image" -}}
{{- $images := (index . 0).Values.images -}}
{{- if not (or $images.registry (eq $images.pullPolicy "Never")) }}
{{- fail "images.registry is not set, and no registry has images of this name that are ours: publish them with `make push REGISTRY=host/path TAG=v1`, then set images.registry=host/path and images.tag=v1; on Nodes that were given the images of `make images` set images.pullPolicy=Never" }}
{{- end -}}
{{ printf "%s/%s:%s" (default "tombolo" $images.registry) (index . 1) $images.tag }}
{{- end }}

{{- define "tombolo.pullPolicy" -}}
{{ default "IfNotPresent" .Values.images.pullPolicy }}
{{- end }}

{{/* imagePullSecrets of a Pod, where there are any. */}}
{{- define "tombolo.pullSecrets" -}}
{{- with .Values.images.pullSecrets }}
      imagePullSecrets: {{- toYaml . | nindent 8 }}
{{- end }}
{{- end }}
