{{/* The environment of every process that needs the database. */}}
{{- define "clockhand.databaseEnvironment" -}}
- name: CLOCKHAND_DATABASE_URL
  valueFrom:
    secretKeyRef:
      name: {{ include "clockhand.databaseSecret" . | quote }}
      key: {{ ternary "url" .Values.database.existingSecretKey .Values.demoDatabase.enabled | quote }}
- name: CLOCKHAND_DATABASE_SESSION_OPTIONS
  value: {{ .Values.database.sessionOptions | quote }}
{{- if include "clockhand.databaseCa" . }}
# libpq's own, for a URL that says nothing of it
- name: PGSSLMODE
  value: verify-full
- name: PGSSLROOTCERT
  value: /etc/clockhand-database/{{ .Values.database.ca.key }}
{{- end }}
- name: CLOCKHAND_LOG_FORMAT
  value: {{ .Values.logFormat }}
- name: CLOCKHAND_RETENTION_DAYS
  value: {{ .Values.retentionDays | quote }}
{{- end -}}

{{/* The volume source of the database's authorities, empty where none are named. */}}
{{- define "clockhand.databaseCa" -}}
{{- with .Values.database.ca -}}
{{- if and .existingSecret .existingConfigMap -}}
{{- fail "database.ca: existingSecret or existingConfigMap, not both" -}}
{{- end -}}
{{- if and $.Values.demoDatabase.enabled (or .existingSecret .existingConfigMap) -}}
{{- fail "database.ca: the demo database has no certificate that could be checked" -}}
{{- end -}}
{{- if .existingSecret -}}
secret:
  secretName: {{ .existingSecret | quote }}
{{- else if .existingConfigMap -}}
configMap:
  name: {{ .existingConfigMap | quote }}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The environment of those who fire. */}}
{{- define "clockhand.engineEnvironment" -}}
- name: CLOCKHAND_SHARD_LEASE
  value: {{ .Values.shardLeaseSeconds | quote }}
- name: CLOCKHAND_LIMITS
  value: /etc/clockhand/limits.yaml
{{- with .Values.kafka }}
{{- if .brokers }}
{{- if ne (hasPrefix "SASL_" .securityProtocol) (not (empty .sasl.username)) }}
{{- fail "kafka.sasl.username and kafka.securityProtocol: a user needs a protocol that begins with SASL, and that one a user" }}
{{- end }}
- name: CLOCKHAND_KAFKA
  value: {{ .brokers | quote }}
- name: CLOCKHAND_KAFKA_SECURITY_PROTOCOL
  value: {{ .securityProtocol }}
- name: CLOCKHAND_KAFKA_PARTITIONS
  value: {{ .partitions | quote }}
{{- if .ca.existingSecret }}
- name: CLOCKHAND_KAFKA_CA
  value: /etc/clockhand-kafka-ca/{{ .ca.key }}
{{- end }}
{{- if .sasl.username }}
- name: CLOCKHAND_KAFKA_SASL_MECHANISM
  value: {{ .sasl.mechanism }}
- name: CLOCKHAND_KAFKA_USERNAME
  value: {{ .sasl.username | quote }}
- name: CLOCKHAND_KAFKA_PASSWORD_FILE
  value: /etc/clockhand-kafka/{{ .sasl.passwordKey }}
{{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Their volumes, and where these are mounted. */}}
{{- define "clockhand.engineVolumes" -}}
- name: limits
  configMap:
    name: {{ include "clockhand.fullname" . }}-limits
{{- with .Values.kafka }}
{{- if and .brokers .ca.existingSecret }}
- name: kafka-ca
  secret:
    secretName: {{ .ca.existingSecret | quote }}
{{- end }}
{{- if and .brokers .sasl.username }}
- name: kafka
  secret:
    secretName: {{ required "kafka.sasl.existingSecret: name the Secret with the user's password" .sasl.existingSecret | quote }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "clockhand.engineMounts" -}}
- name: limits
  mountPath: /etc/clockhand
  readOnly: true
{{- with .Values.kafka }}
{{- if and .brokers .ca.existingSecret }}
- name: kafka-ca
  mountPath: /etc/clockhand-kafka-ca
  readOnly: true
{{- end }}
{{- if and .brokers .sasl.username }}
- name: kafka
  mountPath: /etc/clockhand-kafka
  readOnly: true
{{- end }}
{{- end }}
{{- end -}}

{{/* What PodSecurity `restricted` asks for, of a container, and of a pod beside what it is given. */}}
{{- define "clockhand.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{- define "clockhand.podSecurity" -}}
{{- merge (deepCopy (default dict .)) (dict "runAsNonRoot" true "seccompProfile" (dict "type" "RuntimeDefault")) | toYaml -}}
{{- end -}}

{{/* Where a pod may be, and who pulls its images, given (dict "root" . "pods" .Values.pods). Empty where nothing is said. */}}
{{- define "clockhand.placement" -}}
{{- $said := dict -}}
{{- with .root.Values.imagePullSecrets }}{{- $_ := set $said "imagePullSecrets" . }}{{- end -}}
{{- range $key := list "priorityClassName" "nodeSelector" "tolerations" "affinity" -}}
{{- with get $.pods $key }}{{- $_ := set $said $key . }}{{- end -}}
{{- end -}}
{{- with $said }}{{ toYaml . }}{{- end -}}
{{- end -}}

{{/* A probe, given (dict "path" "/healthz" "timing" (dict ...)). */}}
{{- define "clockhand.probe" -}}
{{- merge (dict "httpGet" (dict "path" .path "port" "health")) (default dict .timing) | toYaml -}}
{{- end -}}

{{/*
A long-running part: Deployment, disruption budget and service account. Given (dict "root" . "component" "operator" "args" (list ...)
"ports" "..." "environment" "..." "volumes" "..." "mounts" "..." "tmp" "...").
*/}}
{{- define "clockhand.part" -}}
{{- $root := .root -}}
{{- $own := get $root.Values .component -}}
{{- $name := printf "%s-%s" (include "clockhand.fullname" $root) .component -}}
{{- $pods := deepCopy $root.Values.pods -}}
{{- range $key, $value := $own.pod }}{{- $_ := set $pods $key $value }}{{- end -}}
{{- $meta := dict "root" $root "component" .component "name" $name -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  {{- include "clockhand.metadata" $meta | nindent 2 }}
spec:
  replicas: {{ $own.replicas }}
  selector:
    matchLabels:
      {{- include "clockhand.selector" . | nindent 6 }}
  strategy:
    rollingUpdate:
      maxSurge: 1
      maxUnavailable: 0
  template:
    metadata:
      labels:
        {{- include "clockhand.podLabels" (dict "root" $root "component" .component "labels" $pods.labels) | nindent 8 }}
      {{- with $pods.annotations }}
      annotations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
    spec:
      serviceAccountName: {{ include "clockhand.account" . | quote }}
      automountServiceAccountToken: true
      # variables made from Services would be read as settings: CLOCKHAND_API_PORT
      enableServiceLinks: false
      terminationGracePeriodSeconds: {{ $pods.terminationGracePeriodSeconds }}
      {{- with include "clockhand.placement" (dict "root" $root "pods" $pods) }}
      {{- . | nindent 6 }}
      {{- end }}
      {{- if $pods.topologyKeys }}
      topologySpreadConstraints:
        {{- range $pods.topologyKeys }}
        - maxSkew: 1
          topologyKey: {{ . | quote }}
          whenUnsatisfiable: ScheduleAnyway
          labelSelector:
            matchLabels:
              {{- include "clockhand.selector" $ | nindent 14 }}
        {{- end }}
      {{- end }}
      securityContext:
        {{- include "clockhand.podSecurity" $pods.securityContext | nindent 8 }}
      containers:
        - name: {{ .component }}
          image: {{ include "clockhand.image" (dict "image" $root.Values.image "version" $root.Chart.AppVersion) }}
          imagePullPolicy: {{ $root.Values.image.pullPolicy }}
          args: {{ toJson .args }}
          env:
            {{- include "clockhand.databaseEnvironment" $root | nindent 12 }}
            - name: CLOCKHAND_DATABASE_POOL
              value: {{ $root.Values.database.pool | quote }}
            {{- .environment | nindent 12 }}
            {{- with $own.extraEnv }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
          ports:
            {{- with .ports }}
            {{- . | nindent 12 }}
            {{- end }}
            - name: health
              containerPort: 8081
          livenessProbe:
            {{- include "clockhand.probe" (dict "path" "/healthz" "timing" $pods.livenessProbe) | nindent 12 }}
          readinessProbe:
            {{- include "clockhand.probe" (dict "path" "/readyz" "timing" $pods.readinessProbe) | nindent 12 }}
          {{- if .ports }}
          # the endpoint is withdrawn before the process stops answering
          lifecycle:
            preStop:
              sleep:
                seconds: 5
          {{- end }}
          resources:
            {{- toYaml $own.resources | nindent 12 }}
          securityContext:
            {{- include "clockhand.containerSecurity" . | nindent 12 }}
          volumeMounts:
            - name: tmp
              mountPath: /tmp
            {{- with .mounts }}
            {{- . | nindent 12 }}
            {{- end }}
            {{- if include "clockhand.databaseCa" $root }}
            - name: database-ca
              mountPath: /etc/clockhand-database
              readOnly: true
            {{- end }}
            {{- with $pods.extraVolumeMounts }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
      volumes:
        - name: tmp
          emptyDir:
            {{- .tmp | nindent 12 }}
        {{- with .volumes }}
        {{- . | nindent 8 }}
        {{- end }}
        {{- with include "clockhand.databaseCa" $root }}
        - name: database-ca
          {{- . | nindent 10 }}
        {{- end }}
        {{- with $pods.extraVolumes }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
{{- if $own.podDisruptionBudget.enabled }}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  {{- include "clockhand.metadata" $meta | nindent 2 }}
spec:
  maxUnavailable: 1
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels:
      {{- include "clockhand.selector" . | nindent 6 }}
{{- end }}
{{- if $own.serviceAccount.create }}
---
apiVersion: v1
kind: ServiceAccount
metadata:
  {{- include "clockhand.metadata" (merge (dict "name" (include "clockhand.account" .)) $meta) | nindent 2 }}
  {{- with $own.serviceAccount.annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
automountServiceAccountToken: false
{{- end }}
{{- end -}}
