package services

import "github.com/tombolo-net/tombolo/pkg/reasons"

// The reasons of this package.
var (
	reasonRequestsAccepted = reasons.New(reasons.Row{
		Name: "Accepted", Objects: "ServiceExport", Shown: reasons.Condition, Level: reasons.Info,
		Cause: "The annotations about requests are valid. Nothing is wrong.",
	})

	reasonRequestsInvalid = reasons.New(reasons.Row{
		Name: "RequestsInvalid", Objects: "ServiceExport, ServiceImport",
		Shown: reasons.Condition | reasons.Event, Level: reasons.Error,
		Cause:  "The annotations about requests are not valid.",
		Remedy: "Correct the annotation that the message names.",
	})
)
