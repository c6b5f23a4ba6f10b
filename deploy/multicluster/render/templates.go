package main

// access is the ServiceAccount of the controller and what it may do.
const access = `---
apiVersion: v1
kind: ServiceAccount
metadata:
  name: antrea-mc-controller
  namespace: << .Namespace >>
  labels: {app: antrea, component: antrea-mc-controller}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: antrea-mc-controller-role
  namespace: << .Namespace >>
rules:
<<- if eq .Role "leader" >>
  - apiGroups: [multicluster.crd.antrea.io]
    resources: [clusterclaims]
    verbs: [get, list, watch]
  - apiGroups: [multicluster.crd.antrea.io]
    resources: [clustersets]
    verbs: [get, list, watch, update]
  - apiGroups: [multicluster.crd.antrea.io]
    resources: [clustersets/status, resourceexports/status, resourceimports/status]
    verbs: [update]
  - apiGroups: [multicluster.crd.antrea.io]
    resources: [memberclusterannounces, resourceexports]
    verbs: [get, list, watch, patch, delete]
  - apiGroups: [multicluster.crd.antrea.io]
    resources: [resourceimports]
    verbs: [get, list, watch, create, update, delete]
  - apiGroups: [""]
    resources: [serviceaccounts]
    verbs: [get, list, watch, patch]
  - apiGroups: [""]
    resources: [events]
    verbs: [list]
<<- else >>
  - apiGroups: [""]
    resources: [secrets]
    verbs: [get] # the one that the ClusterSet names
<<- end >>
  - apiGroups: [""]
    resources: [configmaps]
    verbs: [create]
  - apiGroups: [""]
    resources: [configmaps]
    resourceNames: [antrea-mc-ca]
    verbs: [get, update]
  # The manifest makes the Secret: creation cannot be restricted to a name.
  - apiGroups: [""]
    resources: [secrets]
    resourceNames: [antrea-mc-webhook-tls]
    verbs: [get, update]
  - apiGroups: [coordination.k8s.io]
    resources: [leases]
    verbs: [create]
  - apiGroups: [coordination.k8s.io]
    resources: [leases]
    resourceNames: [antrea-mc-controller]
    verbs: [get, update]
  - apiGroups: [""]
    resources: [events]
    verbs: [create, patch]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: antrea-mc-controller-rolebinding
  namespace: << .Namespace >>
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: antrea-mc-controller-role}
subjects:
  - {kind: ServiceAccount, name: antrea-mc-controller, namespace: << .Namespace >>}
<<- if eq .Role "leader" >>
---
# The Events of all members together. What each member may have is limited by admission
# (docs/multicluster.md). Custom resources are not counted here: a quota on a kind whose
# definition is new refuses everything until kube-controller-manager syncs it, five minutes later.
apiVersion: v1
kind: ResourceQuota
metadata:
  name: antrea-mc-members
  namespace: << .Namespace >>
spec:
  hard:
    count/events: "5000"
---
# Members' requests wait for each other, member by member, and not in the way of anybody else's.
apiVersion: flowcontrol.apiserver.k8s.io/v1
kind: PriorityLevelConfiguration
metadata:
  name: << .Prefix >>antrea-mc-members
spec:
  type: Limited
  limited:
    nominalConcurrencyShares: 10
    lendablePercent: 50
    borrowingLimitPercent: 0 # of others' shares: members have at most these
    limitResponse:
      type: Queue
      queuing: {queues: 32, handSize: 4, queueLengthLimit: 50}
---
apiVersion: flowcontrol.apiserver.k8s.io/v1
kind: FlowSchema
metadata:
  name: << .Prefix >>antrea-mc-members
spec:
  matchingPrecedence: 1010
  priorityLevelConfiguration: {name: << .Prefix >>antrea-mc-members}
  distinguisherMethod: {type: ByUser}
  rules:
    - subjects:
        - kind: Group
          group: {name: "system:serviceaccounts:<< .Namespace >>"}
      resourceRules:
        - {apiGroups: ["*"], resources: ["*"], verbs: ["*"], clusterScope: true, namespaces: ["*"]}
      nonResourceRules:
        - {nonResourceURLs: ["*"], verbs: ["*"]}
---
# The leader's controller is in the same group, and not a member.
apiVersion: flowcontrol.apiserver.k8s.io/v1
kind: FlowSchema
metadata:
  name: << .Prefix >>antrea-mc-controller
spec:
  matchingPrecedence: 1000
  priorityLevelConfiguration: {name: workload-high}
  distinguisherMethod: {type: ByUser}
  rules:
    - subjects:
        - kind: ServiceAccount
          serviceAccount: {name: antrea-mc-controller, namespace: << .Namespace >>}
      resourceRules:
        - {apiGroups: ["*"], resources: ["*"], verbs: ["*"], clusterScope: true, namespaces: ["*"]}
      nonResourceRules:
        - {nonResourceURLs: ["*"], verbs: ["*"]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: antrea-mc-member-cluster-role
  namespace: << .Namespace >>
rules:
  - apiGroups: [multicluster.crd.antrea.io]
    resources: [memberclusterannounces, resourceexports]
    verbs: [create, delete, get, list, patch, update, watch]
  # The original also lets members patch and update these: anybody's, and no member needs to.
  - apiGroups: [multicluster.crd.antrea.io]
    resources: [memberclusterannounces/status, resourceexports/status, resourceimports/status]
    verbs: [get]
  - apiGroups: [multicluster.crd.antrea.io]
    resources: [resourceimports]
    verbs: [get, list, watch]
  - apiGroups: [""]
    resources: [events]
    verbs: [create]
<<- else >>
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: antrea-mc-controller-role
# With update beside patch: during an upgrade, or after it is undone, replicas of earlier versions run with this role,
# and they write by update.
rules:
  - apiGroups: [""]
    resources: [services, endpoints]
    verbs: [get, list, watch, create, update, patch, delete]
  - apiGroups: [""]
    resources: [nodes, namespaces]
    verbs: [get, list, watch]
  - apiGroups: [""]
    resources: [pods] # their labels and addresses, with enableStretchedNetworkPolicy
    verbs: [list, watch]
  - apiGroups: ["", events.k8s.io]
    resources: [events]
    verbs: [create, patch]
  - apiGroups: [discovery.k8s.io]
    resources: [endpointslices]
    verbs: [get, list, watch]
  - apiGroups: [networking.k8s.io]
    resources: [servicecidrs]
    verbs: [get]
  - apiGroups: [multicluster.crd.antrea.io]
    resources: [clusterclaims]
    verbs: [get, list, watch]
  - apiGroups: [multicluster.crd.antrea.io]
    resources: [clustersets]
    verbs: [get, list, watch, update, patch]
  - apiGroups: [multicluster.crd.antrea.io]
    resources: [clustersets/status]
    verbs: [update, patch]
  - apiGroups: [multicluster.crd.antrea.io]
    resources: [gateways, clusterinfoimports]
    verbs: [get, list, watch, create, update, patch, delete]
  - apiGroups: [multicluster.crd.antrea.io]
    resources: [labelidentities, podaddressimports]
    verbs: [list, watch, create, patch, delete]
  # Policies that the leader replicates.
  - apiGroups: [crd.antrea.io, policy.networking.k8s.io]
    resources: [clusternetworkpolicies]
    verbs: [list, watch, create, patch, delete]
  - apiGroups: [networking.k8s.io]
    resources: [networkpolicies]
    verbs: [list, watch, create, patch, delete]
  - apiGroups: [crd.antrea.io]
    resources: [tiers]
    verbs: [list, watch]
  - apiGroups: [multicluster.x-k8s.io]
    resources: [serviceexports]
    verbs: [get, list, watch]
  - apiGroups: [multicluster.x-k8s.io]
    resources: [serviceexports/status]
    verbs: [update, patch]
  - apiGroups: [multicluster.x-k8s.io]
    resources: [serviceimports]
    verbs: [get, list, watch, create, update, patch, delete]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: antrea-mc-controller-rolebinding
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: antrea-mc-controller-role}
subjects:
  - {kind: ServiceAccount, name: antrea-mc-controller, namespace: << .Namespace >>}
<<- end >>
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: << .Prefix >>antrea-mc-controller-webhook-role
rules:
  - apiGroups: [admissionregistration.k8s.io]
    resources: [mutatingwebhookconfigurations, validatingwebhookconfigurations]
    verbs: [list]
  - apiGroups: [admissionregistration.k8s.io]
    resources: [mutatingwebhookconfigurations, validatingwebhookconfigurations]
    resourceNames: [<< .Prefix >>antrea-mc-mutating-webhook-configuration, << .Prefix >>antrea-mc-validating-webhook-configuration]
    verbs: [update]
  - nonResourceURLs: [/readyz] # an API server that is not ready yet denies kinds that it has
    verbs: [get]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: << .Prefix >>antrea-mc-controller-webhook-rolebinding
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: << .Prefix >>antrea-mc-controller-webhook-role}
subjects:
  - {kind: ServiceAccount, name: antrea-mc-controller, namespace: << .Namespace >>}
`

// workload is the controller, its configuration and its Service.
const workload = `---
apiVersion: v1
kind: ConfigMap
metadata:
  name: antrea-mc-controller-config
  namespace: << .Namespace >>
data:
  controller_manager_config.yaml: |
    apiVersion: multicluster.crd.antrea.io/v1alpha1
    kind: MultiClusterConfig
    health:
      healthProbeBindAddress: :8080
    metrics:
      bindAddress: "0"
    webhook:
      port: 9443
    # One of the replicas writes, the one that holds the Lease; all serve the webhooks.
    leaderElection:
      leaderElect: true
<<- if eq .Role "member" >>
    # The range of this cluster's ClusterIPs; empty means to find it out.
    serviceCIDR: ""
    # The ranges of this cluster's Pods, for Pod-to-Pod connectivity.
    podCIDRs:
      - ""
    # The address of a Gateway Node that other clusters use: private, internal, public or external.
    gatewayIPPrecedence: private
    # What other clusters reach an exported Service by: ClusterIP or PodIP.
    endpointIPType: ClusterIP
    # Exchange the sets of labels that Pods have with the other clusters, for policies across clusters.
    enableStretchedNetworkPolicy: false
    # With it: publish the addresses of Pods within podCIDRs, so that policies of the other clusters can name them as
    # egress peers.
    publishPodAddresses: false
<<- end >>
---
# The controller fills in the webhooks' certificate, one for all replicas.
apiVersion: v1
kind: Secret
metadata:
  name: antrea-mc-webhook-tls
  namespace: << .Namespace >>
  labels: {app: antrea, component: antrea-mc-controller}
type: Opaque
---
apiVersion: v1
kind: Service
metadata:
  name: antrea-mc-webhook-service
  namespace: << .Namespace >>
spec:
  ports:
    - port: 443
      targetPort: 9443
  selector: {app: antrea, component: antrea-mc-controller}
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: antrea-mc-controller
  namespace: << .Namespace >>
  labels: {app: antrea, component: antrea-mc-controller}
spec:
  # One of the replicas is elected; all serve the webhooks.
  replicas: 2
  selector:
    matchLabels: {app: antrea, component: antrea-mc-controller}
  template:
    metadata:
      labels: {app: antrea, component: antrea-mc-controller}
    spec:
      serviceAccountName: antrea-mc-controller
      securityContext:
        runAsNonRoot: true
        runAsUser: 65532
        runAsGroup: 65532
        seccompProfile: {type: RuntimeDefault}
      affinity:
        podAntiAffinity:
          preferredDuringSchedulingIgnoredDuringExecution:
            - weight: 100
              podAffinityTerm:
                topologyKey: kubernetes.io/hostname
                labelSelector:
                  matchLabels: {app: antrea, component: antrea-mc-controller}
      priorityClassName: system-cluster-critical
      nodeSelector: {kubernetes.io/os: linux}
      tolerations:
        - {key: node-role.kubernetes.io/control-plane, operator: Exists, effect: NoSchedule}
        - {key: node.kubernetes.io/not-ready, operator: Exists, effect: NoExecute, tolerationSeconds: 10}
        - {key: node.kubernetes.io/unreachable, operator: Exists, effect: NoExecute, tolerationSeconds: 10}
      containers:
        - name: antrea-mc-controller
          image: tombolo/tombolo-controller:dev
          imagePullPolicy: IfNotPresent
          args: [<< .Role >>, --config=/controller_manager_config.yaml]
          env:
            - name: POD_NAMESPACE
              valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
          ports:
            - {name: webhook, containerPort: 9443}
            - {name: health, containerPort: 8080}
          livenessProbe:
            httpGet: {path: /healthz, port: health}
            initialDelaySeconds: 15
            periodSeconds: 20
          readinessProbe:
            httpGet: {path: /readyz, port: health}
            initialDelaySeconds: 5
            periodSeconds: 10
          resources:
            requests: {cpu: 20m, memory: 64Mi}
          securityContext:
            allowPrivilegeEscalation: false
            capabilities: {drop: [ALL]}
            readOnlyRootFilesystem: true
          volumeMounts:
            - {name: config, mountPath: /controller_manager_config.yaml, subPath: controller_manager_config.yaml, readOnly: true}
      volumes:
        - name: config
          configMap: {name: antrea-mc-controller-config}
`

// webhooks name the requests that the API server has the controller review. The controller fills in caBundle.
const webhooks = `
<<- define "meta" >>
  labels: {app: antrea, served-by: antrea-mc-controller, role: << .Role >>, served-in: << .Namespace >>}
<<- end >>
<<- define "events" >>
    sideEffects: None
    admissionReviewVersions: [v1]
    failurePolicy: Fail # or a member could fill etcd while this controller is away
    timeoutSeconds: 2
    # Events of the cluster's own components do not wait for this controller.
    matchConditions:
      - name: members
        expression: >-
          request.userInfo.username.startsWith("system:serviceaccount:<< .Namespace >>:") &&
          request.userInfo.username != "system:serviceaccount:<< .Namespace >>:antrea-mc-controller"
    namespaceSelector:
      matchLabels: {kubernetes.io/metadata.name: << .Namespace >>}
    rules:
      - {apiGroups: [""], apiVersions: [v1], resources: [events], operations: [CREATE]}
<<- end >>
<<- define "hook" >>
    admissionReviewVersions: [v1]
    failurePolicy: Fail
    timeoutSeconds: 10
    namespaceSelector:
      matchLabels: {kubernetes.io/metadata.name: << .Namespace >>}
<<- end >>---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata:
  name: << .Prefix >>antrea-mc-validating-webhook-configuration
<<- template "meta" . >>
webhooks:
  - name: vclusterset.kb.io
    sideEffects: None
<<- template "hook" . >>
    clientConfig:
      service: {name: antrea-mc-webhook-service, namespace: << .Namespace >>, path: /validate-multicluster-crd-antrea-io-v1alpha2-clusterset}
    rules:
      - {apiGroups: [multicluster.crd.antrea.io], apiVersions: [v1alpha2], resources: [clustersets], operations: [CREATE, UPDATE, DELETE]}
  - name: vclusterclaim.kb.io
    sideEffects: None
<<- template "hook" . >>
    clientConfig:
      service: {name: antrea-mc-webhook-service, namespace: << .Namespace >>, path: /validate-multicluster-crd-antrea-io-v1alpha2-clusterclaim}
    rules:
      - {apiGroups: [multicluster.crd.antrea.io], apiVersions: [v1alpha2], resources: [clusterclaims], operations: [CREATE, UPDATE, DELETE]}
<<- if eq .Role "member" >>
  - name: vgateway.kb.io
    sideEffects: None
<<- template "hook" . >>
    clientConfig:
      service: {name: antrea-mc-webhook-service, namespace: << .Namespace >>, path: /validate-multicluster-crd-antrea-io-v1alpha1-gateway}
    rules:
      - {apiGroups: [multicluster.crd.antrea.io], apiVersions: [v1alpha1], resources: [gateways], operations: [CREATE, UPDATE]}
<<- else >>
  - name: vmemberclusterannounce.kb.io
    sideEffects: None
<<- template "hook" . >>
    clientConfig:
      service: {name: antrea-mc-webhook-service, namespace: << .Namespace >>, path: /validate-multicluster-crd-antrea-io-v1alpha1-memberclusterannounce}
    rules:
      - {apiGroups: [multicluster.crd.antrea.io], apiVersions: [v1alpha1], resources: [memberclusterannounces], operations: [CREATE, UPDATE, DELETE]}
  - name: vresourceexport.kb.io
    sideEffects: None
<<- template "hook" . >>
    clientConfig:
      service: {name: antrea-mc-webhook-service, namespace: << .Namespace >>, path: /validate-multicluster-crd-antrea-io-v1alpha1-resourceexport}
    rules:
      - {apiGroups: [multicluster.crd.antrea.io], apiVersions: [v1alpha1], resources: [resourceexports], operations: [CREATE, UPDATE, DELETE]}
  - name: vevent.kb.io
<<- template "events" . >>
    clientConfig:
      service: {name: antrea-mc-webhook-service, namespace: << .Namespace >>, path: /validate--v1-event}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata:
  name: << .Prefix >>antrea-mc-mutating-webhook-configuration
<<- template "meta" . >>
webhooks:
  - name: mmemberclusterannounce.kb.io
    sideEffects: None
<<- template "hook" . >>
    clientConfig:
      service: {name: antrea-mc-webhook-service, namespace: << .Namespace >>, path: /mutate-multicluster-crd-antrea-io-v1alpha1-memberclusterannounce}
    rules:
      - {apiGroups: [multicluster.crd.antrea.io], apiVersions: [v1alpha1], resources: [memberclusterannounces], operations: [CREATE, UPDATE]}
  - name: mresourceexport.kb.io
    sideEffects: None
<<- template "hook" . >>
    clientConfig:
      service: {name: antrea-mc-webhook-service, namespace: << .Namespace >>, path: /mutate-multicluster-crd-antrea-io-v1alpha1-resourceexport}
    rules:
      - {apiGroups: [multicluster.crd.antrea.io], apiVersions: [v1alpha1], resources: [resourceexports], operations: [CREATE, UPDATE]}
  - name: mevent.kb.io
<<- template "events" . >>
    clientConfig:
      service: {name: antrea-mc-webhook-service, namespace: << .Namespace >>, path: /mutate--v1-event}
<<- end >>
`
