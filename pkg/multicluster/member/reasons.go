package member

import "github.com/tombolo-net/tombolo/pkg/reasons"

// The reasons of this package.
var (
	reasonResourceExportFailed = reasons.New(reasons.Row{
		Name: "ResourceExportFailed", Objects: "any exported object", Shown: reasons.Event, Level: reasons.Warning,
		Cause:  "The leader refuses an export. It is tried again.",
		Remedy: "The message has the leader's error.",
	})
)
