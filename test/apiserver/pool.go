package apiserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"time"
)

// The start of an API server costs seven seconds of processor time, and a test makes only a few objects. So a server
// whose test has passed is emptied, and serves the next test that needs the same one. A server ends with its test if
// the test has failed, has stopped it, or has changed its definitions.

// idle are the servers that no test has, the last one last.
var idle struct {
	sync.Mutex
	servers []*Server
}

// mostIdle is how many servers wait for a test at most. Each takes 600 MB.
const mostIdle = 6

// key names the options. The paths of definitions are absolute.
func (o Options) key() string { return fmt.Sprintf("%q %q %q", o.ServiceCIDR, o.NodePorts, o.CRDs) }

// take returns an idle server without objects of tests, or starts one.
func take(ctx context.Context, o Options) (*Server, error) {
	for {
		s := pop(o.key())
		switch {
		case s == nil:
			return begin(ctx, o)
		case s.empty(ctx) == nil:
			return s, nil
		}
		s.end()
	}
}

func pop(key string) *Server {
	idle.Lock()
	defer idle.Unlock()
	for i, s := range slices.Backward(idle.servers) {
		if s.options.key() == key {
			idle.servers = slices.Delete(idle.servers, i, i+1)
			return s
		}
	}
	return nil
}

// giveBack keeps a server for another test, or ends it.
func (s *Server) giveBack(failed bool) {
	if s.loan != nil {
		if !failed {
			_, _ = s.loan.ask(context.Background(), request{Do: "return"}) // without a lender there is no server
		}
		_ = s.loan.connection.Close()
		return
	}
	if failed || s.stop == nil {
		s.end()
		return
	}
	if oldest := push(s); oldest != nil {
		oldest.end()
	}
}

// push adds an idle server, and returns one that there is no room for, or nil.
func push(s *Server) (oldest *Server) {
	idle.Lock()
	defer idle.Unlock()
	if idle.servers = append(idle.servers, s); len(idle.servers) > mostIdle {
		oldest = idle.servers[0]
		idle.servers = slices.Delete(idle.servers, 0, 1)
	}
	return oldest
}

// end kills the server and its etcd, and removes their files.
func (s *Server) end() {
	s.Stop()
	s.stopEtcd()
	s.remove()
	for _, release := range s.release {
		release()
	}
}

// temporary makes a directory. It exists until remove is called, or until this program ends, however it ends.
func temporary() (dir string, remove func(), err error) {
	if dir, err = os.MkdirTemp("", "apiserver-"); err != nil {
		return "", nil, err
	}
	// The pipe closes when this program ends. Programs that write to the directory are killed at that time, and may need a
	// moment to end.
	remover := exec.Command("sh", "-c", `cat; while [ -e "$0" ]; do rm -rf "$0" 2>/dev/null; sleep 0.1; done`, dir)
	remover.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	in, hold, err := os.Pipe()
	if err == nil {
		remover.Stdin = in
		err = remover.Start()
		_ = in.Close()
	}
	if err != nil {
		return "", nil, errors.Join(fmt.Errorf("have %s removed: %w", dir, err), os.RemoveAll(dir))
	}
	return dir, func() {
		_ = hold.Close()
		_ = remover.Wait()
	}, nil
}

// settle is how long a server may take to notice deletions after its own caches have noticed them.
const settle = 100 * time.Millisecond

// settlePolicies is the same time after a change of admission policies. The API server reads them once a second
// (policyRefreshIntervalDefault in k8s.io/apiserver/pkg/admission/plugin/policy/generic).
const settlePolicies = 1200 * time.Millisecond
