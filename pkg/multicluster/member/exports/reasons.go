package exports

import (
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/reasons"
)

// The reasons of this package.
var (
	reasonNameConflict = reasons.New(reasons.Row{
		Name: "ExportNameConflict", Objects: "ServiceExport", Shown: reasons.Condition, Level: reasons.Error,
		Cause:  "Two Services have the same name of a ResourceExport.",
		Remedy: "Rename one of the Services.",
	})

	reasonNameTooLong = reasons.New(reasons.Row{
		Name: "ExportNameTooLong", Objects: "ServiceExport", Shown: reasons.Condition, Level: reasons.Error,
		Cause:  "The name of the Service is too long, since it is imported with a prefix.",
		Remedy: "Rename the Service.",
	})

	reasonExportPending = reasons.New(reasons.Row{
		Name: "ExportPending", Objects: "ServiceExport", Shown: reasons.Condition, Level: reasons.Info,
		Cause: "The Service can be exported, and the leader gets it within seconds. Nothing is wrong.",
	})

	reasonMetadataInvalid = reasons.New(reasons.Row{
		Name: "ExportedMetadataInvalid", Objects: "ServiceExport", Shown: reasons.Condition, Level: reasons.Error,
		Cause:  "The labels or annotations to export are not allowed.",
		Remedy: "Correct them.",
	})

	reasonImportedService = reasons.New(reasons.Row{
		Name: "ImportedService", Objects: "ServiceExport", Shown: reasons.Condition, Level: reasons.Error,
		Cause:  "The Service is imported, so it is not exported again.",
		Remedy: "Delete the ServiceExport.",
	})

	reasonNoClusterSet = reasons.New(reasons.Row{
		Name: "NoClusterSet", Objects: "ServiceExport", Shown: reasons.Condition, Level: reasons.Error,
		Cause:  "The cluster has left its ClusterSet.",
		Remedy: "Let it join, or delete the ServiceExport.",
	})

	reasonNoClusterIP = reasons.New(reasons.Row{
		Name: "ServiceNoClusterIP", Objects: "ServiceExport", Shown: reasons.Condition, Level: reasons.Error,
		Cause:  "The Service has no ClusterIP in a Service range.",
		Remedy: "The message has the remedy. Headless Services need podCIDRs.",
	})

	reasonServiceNotFound = reasons.New(reasons.Row{
		Name: "ServiceNotFound", Objects: "ServiceExport", Shown: reasons.Condition, Level: reasons.Error,
		Cause:  "There is no Service of this name.",
		Remedy: "Create the Service, or delete the ServiceExport.",
	})

	reasonTypeNotSupported = reasons.New(reasons.Row{
		Name: "ServiceTypeNotSupported", Objects: "ServiceExport", Shown: reasons.Condition, Level: reasons.Error,
		Cause:  "Services of type ExternalName are not exported.",
		Remedy: "Delete the ServiceExport.",
	})

	reasonWithoutEndpoints = reasons.New(reasons.Row{
		Name: "ServiceWithoutEndpoints", Objects: "ServiceExport", Shown: reasons.Condition, Level: reasons.Warning,
		Cause:  "The endpoints have no address that other clusters reach.",
		Remedy: "See that Pods are Ready. The message names the addresses that are left out.",
	})

	reasonSucceed = reasons.New(reasons.Row{
		Name: "Succeed", Objects: "ServiceExport", Shown: reasons.Condition, Level: reasons.Info,
		Cause: "The Service is exported. Nothing is wrong.",
	})

	reasonEndpointsLeftOut = reasons.New(reasons.Row{
		Name: mcv1alpha1.ReasonEndpointsLeftOut, Objects: "ServiceExport",
		Shown: reasons.Event, Level: reasons.Warning,
		Cause:  "The leader does not import some endpoints.",
		Remedy: "The message has their fault.",
	})

	reasonExported = reasons.New(reasons.Row{
		Name: string(mcsv1beta1.ServiceExportReasonExported), Objects: "ServiceExport",
		Shown: reasons.Condition, Level: reasons.Info,
		Cause: "The leader has the export. Nothing is wrong.",
	})

	reasonFailed = reasons.New(reasons.Row{
		Name: string(mcsv1beta1.ServiceExportReasonFailed), Objects: "ServiceExport",
		Shown: reasons.Condition, Level: reasons.Error,
		Cause:  "The Service is not exported.",
		Remedy: "The condition Valid has the fault.",
	})

	reasonNoConflicts = reasons.New(reasons.Row{
		Name: string(mcsv1beta1.ServiceExportReasonNoConflicts), Objects: "ServiceExport",
		Shown: reasons.Condition, Level: reasons.Info,
		Cause: "No export of the Service contradicts another one. Nothing is wrong.",
	})

	reasonPending = reasons.New(reasons.Row{
		Name: string(mcsv1beta1.ServiceExportReasonPending), Objects: "ServiceExport",
		Shown: reasons.Condition, Level: reasons.Warning,
		Cause:  "The leader does not have the export yet.",
		Remedy: "Wait. After some seconds see the condition Ready of the ClusterSet.",
	})

	reasonPortConflict = reasons.New(reasons.Row{
		Name: string(mcsv1beta1.ServiceExportReasonPortConflict), Objects: "ServiceExport",
		Shown: reasons.Condition, Level: reasons.Error,
		Cause:  "Another cluster exports the Service with other ports, and the leader refuses this export.",
		Remedy: "Give the Service the same ports in all clusters.",
	})
)
