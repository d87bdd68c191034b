{{/* The stem of all names: that of the release, unless it is told otherwise. The longest name appends 27 characters. */}}
{{- define "clockhand.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- $own := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) -}}
{{- default $own .Values.fullnameOverride | trunc 36 | trimSuffix "-" -}}
{{- end -}}

{{/* What the pods of one part are selected by, given (dict "root" . "component" "operator"). */}}
{{- define "clockhand.selector" -}}
app.kubernetes.io/name: {{ default .root.Chart.Name .root.Values.nameOverride | trunc 63 | quote }}
app.kubernetes.io/instance: {{ .root.Release.Name | quote }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{/* The labels of an object, given the same, and perhaps further "labels"; without a component they are those of the whole. */}}
{{- define "clockhand.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" | trunc 63 }}
app.kubernetes.io/name: {{ default .root.Chart.Name .root.Values.nameOverride | trunc 63 | quote }}
app.kubernetes.io/instance: {{ .root.Release.Name | quote }}
{{- with .component }}
app.kubernetes.io/component: {{ . }}
{{- end }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/part-of: clockhand
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
{{- with mergeOverwrite (dict) (default dict .root.Values.commonLabels) (default dict .labels) }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* The labels of a pod of a long-running part or of the Job, given also "labels". */}}
{{- define "clockhand.podLabels" -}}
{{ include "clockhand.selector" . }}
app.kubernetes.io/part-of: clockhand
{{- with mergeOverwrite (dict) (default dict .root.Values.commonLabels) (default dict .labels) }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* A whole metadata for an object of the release's namespace, given also "name". */}}
{{- define "clockhand.metadata" -}}
name: {{ .name | quote }}
namespace: {{ .root.Release.Namespace | quote }}
labels:
  {{- include "clockhand.labels" . | nindent 2 }}
{{- end -}}

{{/* The same for an object of the cluster. */}}
{{- define "clockhand.clusterMetadata" -}}
name: {{ .name | quote }}
labels:
  {{- include "clockhand.labels" . | nindent 2 }}
{{- end -}}

{{/* The service account of a part, given (dict "root" . "component" "operator"). */}}
{{- define "clockhand.account" -}}
{{- $own := printf "%s-%s" (include "clockhand.fullname" .root) .component -}}
{{- default $own (get (get .root.Values .component).serviceAccount "name") -}}
{{- end -}}

{{/* The reference of an image, given (dict "image" .Values.image "version" .Chart.AppVersion). */}}
{{- define "clockhand.image" -}}
{{- if .image.digest -}}
{{ .image.repository }}@{{ .image.digest }}
{{- else -}}
{{ .image.repository }}:{{ default .version .image.tag }}
{{- end -}}
{{- end -}}

{{/* The Secret with the database's URL. */}}
{{- define "clockhand.databaseSecret" -}}
{{- if .Values.demoDatabase.enabled -}}
{{- if .Values.database.existingSecret -}}
{{- fail "demoDatabase.enabled and database.existingSecret: one database, not two; with one of yours set demoDatabase.enabled=false" -}}
{{- end -}}
{{ include "clockhand.fullname" . }}-database
{{- else -}}
{{ required "database.existingSecret: name the Secret with the database's URL, or try Clockhand out with demoDatabase.enabled=true" .Values.database.existingSecret }}
{{- end -}}
{{- end -}}

{{/* Whether the schema is brought up by a hook: a database of the same release is not there yet when hooks run. */}}
{{- define "clockhand.migratesByHook" -}}
{{- if and .Values.migrate.hook (not .Values.demoDatabase.enabled) -}}true{{- end -}}
{{- end -}}
