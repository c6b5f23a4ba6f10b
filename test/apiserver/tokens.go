package apiserver

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// FillTokens does the work of kube-controller-manager for Secrets with ServiceAccounts' tokens, until the test ends. It
// writes the same token, the administrator's, into each.
func FillTokens(t testing.TB, config *rest.Config) {
	t.Helper()
	c, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = wait.PollUntilContextCancel(ctx, 20*time.Millisecond, true, func(ctx context.Context) (bool, error) {
			secrets, err := c.CoreV1().Secrets("").List(ctx, metav1.ListOptions{})
			if err != nil {
				return false, nil
			}
			for _, s := range secrets.Items {
				if s.Type == corev1.SecretTypeServiceAccountToken && s.Data == nil {
					s.Data = map[string][]byte{corev1.ServiceAccountRootCAKey: config.CAData,
						corev1.ServiceAccountTokenKey: []byte(config.BearerToken)}
					_, _ = c.CoreV1().Secrets(s.Namespace).Update(ctx, &s, metav1.UpdateOptions{}) // it may be deleted by now
				}
			}
			return false, nil
		})
	}()
	t.Cleanup(func() { cancel(); <-done })
}
