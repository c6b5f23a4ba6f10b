package lab

import (
	"strings"
	"testing"
)

func TestTryAgain(t *testing.T) {
	for _, row := range []struct {
		args, message string
		want          bool
	}{
		{"exec client -- /echo get http://10.0.0.1/", "Error from server: error dialing backend: dial tcp " +
			"192.168.77.101:10250: connect: connection refused", true},
		{"exec client -- /echo get http://10.0.0.1/", "dial tcp 10.0.0.1:80: connect: connection refused\n" +
			"command terminated with exit code 1", false},
		{"exec client -- /echo get http://10.0.0.1/", "error: websocket: close 1006 (abnormal closure): " +
			"unexpected EOF", false},
		{"exec gone -- /echo", `Error from server (NotFound): pods "gone" not found`, false},
		{"delete pod client", "The connection to the server 172.30.0.10:6443 was refused - did you specify the right " +
			"host or port?", true},
		{"delete pod client", "Error from server: etcdserver: request timed out", false},
		{"apply -f -", "Error from server: etcdserver: request timed out", true},
		{"apply -f -", `Error from server (InternalError): Internal error occurred: failed calling webhook "clustersets": ` +
			`failed to call webhook: Post "https://antrea-mc-webhook-service.kube-system.svc:443/": no endpoints ` +
			`available`, true},
		{"apply -f -", `Error from server (Forbidden): admission webhook "clustersets" denied the request: no`, false},
		{"get pods", "Unable to connect to the server: net/http: TLS handshake timeout", true},
		{"rollout undo daemonset/tombolo-agent", "Unable to connect to the server: unexpected EOF", false},
		{"rollout status daemonset/tombolo-agent", "Unable to connect to the server: unexpected EOF", true},
		{"wait --for=condition=Ready pod/client", "error: timed out waiting for the condition on pods/client", false},
	} {
		if have := tryAgain(strings.Fields(row.args), row.message); have != row.want {
			t.Errorf("kubectl %s: %s: tried again: %t, want %t", row.args, row.message, have, row.want)
		}
	}
}
