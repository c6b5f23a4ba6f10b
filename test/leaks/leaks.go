// Package leaks makes a package's tests fail if goroutines are left after they have ended.
package leaks

import (
	"testing"

	"go.uber.org/goleak"
)

// shared lists goroutines that libraries start once in a process and never end. It also lists goroutines of idle
// connections, which client-go's shared transports keep.
var shared = []goleak.Option{
	goleak.IgnoreAnyFunction("github.com/tombolo-net/tombolo/test/child.serve"),
	goleak.IgnoreAnyFunction("gopkg.in/natefinch/lumberjack%2ev2.(*Logger).millRun"),
	goleak.IgnoreAnyFunction("k8s.io/klog/v2.(*flushDaemon).run.func1"),
	goleak.IgnoreAnyFunction("sigs.k8s.io/controller-runtime/pkg/cache.newMultiNamespaceInformer.func1"),
	goleak.IgnoreAnyFunction(
		"sigs.k8s.io/controller-runtime/pkg/cache.newMultiNamespaceInformerHandlerRegistration.func1"),
	// A stopped watch of metadata leaves this goroutine if its last event was not read (client-go/metadata, watch.Filter).
	goleak.IgnoreAnyFunction("k8s.io/apimachinery/pkg/watch.(*filteredWatch).loop"),
	goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"),
	goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"),
	goleak.IgnoreAnyFunction("net/http.(*http2ClientConn).readLoop"),
	goleak.IgnoreAnyFunction("golang.org/x/net/http2.(*clientConnReadLoop).run"),
	goleak.IgnoreAnyFunction("net/http/internal/http2.(*clientConnReadLoop).run"),
}

// Main runs a package's tests: `func TestMain(m *testing.M) { leaks.Main(m) }`. It ends the process.
func Main(m *testing.M) { goleak.VerifyTestMain(m, shared...) }

// Find returns an error that names the goroutines that are left. It is for a TestMain with further steps.
func Find() error { return goleak.Find(shared...) }
