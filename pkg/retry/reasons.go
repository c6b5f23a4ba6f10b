package retry

import "github.com/tombolo-net/tombolo/pkg/reasons"

// The reasons of this package.
var (
	// ReasonWriteFailed is the usual reason of a Write's Blame.
	ReasonWriteFailed = reasons.New(reasons.Row{
		Name: "WriteFailed", Objects: "any object that Tombolo writes",
		Shown: reasons.Event | reasons.Problem, Level: reasons.Warning,
		Cause:  "The API server refuses a write. It is tried again.",
		Remedy: "The message has the error and the right that is missing.",
	})
)
