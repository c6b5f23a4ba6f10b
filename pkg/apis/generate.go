// Package apis holds the API types, a package for each group and version. `go generate` writes their deep copies and
// the CustomResourceDefinitions in deploy/crds. It makes the definitions of foreign kinds (Multi-Cluster Services API,
// SIG Network's policies) from the types in their own modules.
package apis

//go:generate go run sigs.k8s.io/controller-tools/cmd/controller-gen@v0.21.0 object paths=./...
//go:generate go run sigs.k8s.io/controller-tools/cmd/controller-gen@v0.21.0 crd:allowDangerousTypes=true paths=./multicluster/... paths=./crd/... paths=./tombolo/... paths=./contrail/... output:crd:dir=../../deploy/crds
//go:generate -command gen go run sigs.k8s.io/controller-tools/cmd/controller-gen@v0.21.0
//go:generate gen crd paths=./configplane/... output:crd:dir=../../deploy/crds
//go:generate gen crd paths=./plumbing/... output:crd:dir=../../deploy/crds
//go:generate go run sigs.k8s.io/controller-tools/cmd/controller-gen@v0.21.0 crd:maxDescLen=0 paths=sigs.k8s.io/mcs-api/pkg/apis/v1alpha1 paths=sigs.k8s.io/mcs-api/pkg/apis/v1beta1 output:crd:dir=../../deploy/crds
//go:generate go run sigs.k8s.io/controller-tools/cmd/controller-gen@v0.21.0 crd:maxDescLen=0 paths=sigs.k8s.io/network-policy-api/apis/v1alpha2 output:crd:dir=../../deploy/crds
//go:generate gen crd paths=./stats/... output:crd:dir=../../deploy/crds
//go:generate -command crds go run ./crds ../../deploy/crds multicluster/v1alpha1 multicluster/v1alpha2
//go:generate crds crd/v1alpha1 crd/v1beta1 stats/v1alpha1 tombolo/v1alpha1 contrail/v4 configplane/v1alpha1 plumbing/v1
