"""Values for the chart that between them reach all of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.support import helm

EVERYTHING: Mapping[str, Any] = {
    "commonLabels": {"team": "platform"},
    "image": {"repository": "registry.example/clockhand", "digest": f"sha256:{'a' * 64}"},
    "imagePullSecrets": [{"name": "registry"}],
    "database": {"existingSecret": "clockhand-database", "ca": {"existingConfigMap": "database-ca"}},
    "limits": {"owners": {"*": {"maxConcurrentRuns": 200}}},
    "kafka": {
        "brokers": "kafka:9092",
        "securityProtocol": "SASL_SSL",
        "ca": {"existingSecret": "kafka-ca"},
        "sasl": {"username": "clockhand", "existingSecret": "kafka-password"},
    },
    "operator": {"pod": {"nodeSelector": {"pool": "system"}}, "extraEnv": [{"name": "TZ", "value": "UTC"}]},
    "pods": {
        "labels": {"team": "jobs"},
        "annotations": {"a": "b"},
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "tolerations": [{"operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
        # one that every cluster has: the pod of `helm test` is refused with a name that is nobody's
        "priorityClassName": "system-cluster-critical",
        "securityContext": {"fsGroup": 10001},
        "extraVolumes": [{"name": "more", "emptyDir": {}}],
        "extraVolumeMounts": [{"name": "more", "mountPath": "/more"}],
    },
    "networkPolicy": {"enabled": True, "apiFrom": [{"namespaceSelector": {}}], "egress": [{"ports": [{"port": 5432}]}]},
    "metrics": {
        "serviceMonitor": {"enabled": True},
        "prometheusRule": {"enabled": True},
        "dashboard": {"enabled": True},
    },
    "workerPools": [{"name": "mailers", "namespace": "team-a", "spec": {"handlers": ["email.send"]}}],
    "extraObjects": [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "{{ .Release.Name }}-more"}},
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: text",
    ],
}
MATRIX: Mapping[str, Mapping[str, Any]] = {
    "secret": helm.DATABASE,
    "demo": {"demoDatabase": {"enabled": True}, "networkPolicy": {"enabled": True}},
    "everything": EVERYTHING,
    "namespaced": {**helm.DATABASE, "watchNamespaces": ["team-a", "team-b"]},
    "cert-manager": {**helm.DATABASE, "runs": {"certificate": {"mode": "CertManager"}}},
    "issuer": {
        **helm.DATABASE,
        "runs": {"certificate": {"mode": "CertManager", "issuerRef": {"name": "ours", "kind": "ClusterIssuer"}}},
    },
    "own-certificate": {
        **helm.DATABASE,
        "runs": {"certificate": {"mode": "ExistingSecret", "existingSecret": "tls", "caBundle": "PEM"}},
    },
    "bare": {
        **helm.DATABASE,
        "api": {"enabled": False},
        "runs": {"enabled": False},
        "rbac": {"create": False},
        "crds": {"install": False},
        "admissionPolicy": {"enabled": False},
        "flowControl": {"enabled": False},
        "metrics": {"service": {"enabled": False}},
        "migrate": {"enabled": False},
    },
    "without-hooks": {**helm.DATABASE, "migrate": {"hook": False, "ttlSecondsAfterFinished": None}},
}
