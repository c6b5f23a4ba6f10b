// Package apis holds the API types, a package for each group and version. `go generate`
// writes their deep copies and the CustomResourceDefinitions in deploy/crds.
package apis

//go:generate go run sigs.k8s.io/controller-tools/cmd/controller-gen@v0.21.0 object paths=./...
//go:generate go run sigs.k8s.io/controller-tools/cmd/controller-gen@v0.21.0 crd paths=./... output:crd:dir=../../deploy/crds
