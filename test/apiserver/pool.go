package apiserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// The start of an API server costs seven seconds of processor time, and a test's objects are a few. So a server whose
// test has passed is emptied, and serves the next test that wants the same one. A server of a failed test, one that is
// stopped, and one whose definitions a test has changed, end with their test.

// idle are the servers that no test has, by their options.
var idle = struct {
	sync.Mutex
	servers map[string][]*Server
}{servers: map[string][]*Server{}}

// key names the options.
func (o Options) key() (string, error) {
	parts := []string{o.ServiceCIDR, o.NodePorts}
	for _, path := range o.CRDs {
		absolute, err := filepath.Abs(path)
		if err != nil {
			return "", err
		}
		parts = append(parts, absolute)
	}
	return strings.Join(parts, "\n"), nil
}

// taken returns an idle server without objects of tests, or nil.
func taken(ctx context.Context, key string) *Server {
	for {
		s := pop(key)
		if s == nil || s.empty(ctx) == nil {
			return s
		}
		s.end()
	}
}

func pop(key string) *Server {
	idle.Lock()
	defer idle.Unlock()
	of := idle.servers[key]
	if len(of) == 0 {
		return nil
	}
	idle.servers[key] = of[:len(of)-1]
	return of[len(of)-1]
}

// giveBack keeps a server for another test, or ends it.
func (s *Server) giveBack(failed bool) {
	if failed || s.stop == nil {
		s.end()
		return
	}
	idle.Lock()
	defer idle.Unlock()
	idle.servers[s.key] = append(idle.servers[s.key], s)
}

// end kills the server and its etcd, and removes their files.
func (s *Server) end() {
	s.Stop()
	s.stopEtcd()
	_ = os.RemoveAll(s.dir)
	for _, release := range s.release {
		release()
	}
}

// temporary makes a directory that is removed when this program ends, however it ends.
func temporary() (string, error) {
	dir, err := os.MkdirTemp("", "apiserver-")
	if err != nil {
		return "", err
	}
	// The pipe ends with this program. What writes to the directory dies then, and may take a moment.
	remove := exec.Command("sh", "-c", `cat; while [ -e "$0" ]; do rm -rf "$0" 2>/dev/null; sleep 0.1; done`, dir)
	remove.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if remove.Stdin, err = pipe(); err == nil {
		err = remove.Start()
	}
	if err != nil {
		return "", errors.Join(fmt.Errorf("have %s removed: %w", dir, err), os.RemoveAll(dir))
	}
	return dir, nil
}

// pipe returns the reading end of a pipe whose writing end stays open until this program ends.
func pipe() (io.Reader, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	open.Lock()
	defer open.Unlock()
	open.files = append(open.files, w)
	return r, nil
}

// open keeps files from being closed by the garbage collector.
var open struct {
	sync.Mutex
	files []*os.File
}

// settle is how long a server gets to take notice of what is gone, after its own caches have.
const settle = 100 * time.Millisecond
