package pods

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// TestUntil has errors of API servers that pass, and others.
func TestUntil(t *testing.T) {
	pod := corev1.Resource("pods")
	refused := fmt.Errorf("get: %w", &url.Error{Op: "Get", URL: "https://a", Err: syscall.ECONNREFUSED})
	for _, row := range []struct {
		name   string
		err    error
		passes bool
	}{
		{"refused", refused, true},
		{"busy", apierrors.NewTooManyRequests("busy", 1), true},
		{"slow", apierrors.NewServerTimeout(pod, "get", 1), true},
		{"etcd", apierrors.NewInternalError(errors.New("no leader")), true},
		{"a Namespace that is being deleted", apierrors.NewConflict(pod, "a", errors.New("wait")), true},
		{"no answer", fmt.Errorf("get: %w", context.DeadlineExceeded), true},
		{"no right", apierrors.NewForbidden(pod, "a", errors.New("no")), false},
		{"no API error", errors.New("bad"), false},
	} {
		synctest.Test(t, func(t *testing.T) {
			tries := 0
			err := Until(t.Context(), time.Minute, func(context.Context) (bool, error) {
				if tries++; tries < 3 {
					return false, row.err
				}
				return true, nil
			})
			if row.passes != (err == nil) || !row.passes && !errors.Is(err, row.err) {
				t.Errorf("%s: %v", row.name, err)
			}
			err = Until(t.Context(), time.Minute, func(context.Context) (bool, error) { return false, row.err })
			if !errors.Is(err, row.err) || row.passes != strings.Contains(err.Error(), "not within 1m0s: ") {
				t.Errorf("%s for ever: %v", row.name, err)
			}
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := Until(ctx, time.Minute, func(context.Context) (bool, error) { return false, nil })
	if err == nil || err.Error() != "interrupted" {
		t.Errorf("%v", err)
	}
}
