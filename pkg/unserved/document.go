package unserved

import (
	"fmt"
	"strings"
)

// The text around the table in the document.
const (
	before = `<!-- Code generated from pkg/unserved. DO NOT EDIT. -->
# Not supported

This is the one list of requests that Tombolo does not serve. Each is always reported; the last column names the place.

`
	after = `
The Deployment tombolo-controller of deploy/agent/tombolo.yml writes the Events, once for each finding and again when it
starts. To list them:

    kubectl get events -A --field-selector reportingComponent=tombolo-controller

Events on objects without a Namespace are in Namespace "default". An Event goes after the API server's time for Events,
by default an hour. A Service with the label "service.kubernetes.io/service-proxy-name" belongs to another proxy, and is
not reported.
`
)

// Document returns docs/not-supported.md.
func Document() string { return before + Markdown() + after }

// Markdown returns the list as a table.
func Markdown() string {
	var b strings.Builder
	b.WriteString("| asked for | what happens | reported |\n|---|---|---|\n")
	for _, r := range rows {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", r.Asked, r.Happens, r.Where())
	}
	return b.String()
}
