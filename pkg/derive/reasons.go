package derive

import "github.com/tombolo-net/tombolo/pkg/reasons"

// The reasons of this package.
var (
	// ReasonEvaluationFailed is the reason of the Problem of a key whose function panics.
	ReasonEvaluationFailed = reasons.New(reasons.Row{
		Name: "EvaluationFailed", Objects: "any object", Shown: reasons.Problem, Level: reasons.Error,
		Cause:  "The program failed on this object. The others are not concerned. It is a defect of Tombolo.",
		Remedy: "Report it, with the log and the object.",
	})

	reasonNoNumberLeft = reasons.New(reasons.Row{
		Name: "NoNumberLeft", Objects: "identities, groups and others",
		Shown: reasons.Problem, Level: reasons.Error,
		Cause:  "All numbers are taken. The object is left out.",
		Remedy: "Remove other objects of this kind.",
	})
)
