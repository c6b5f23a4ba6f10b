package apiserver

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestStarterEnds has the thread end that asked for a process. The process lives on.
func TestStarterEnds(t *testing.T) {
	process := exec.Command("sleep", "60")
	var stop func()
	var err error
	main, thread := os.Getpid(), os.Getpid()
	for thread == main { // the main thread does not end
		ended := make(chan int)
		go func() {
			runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
			if syscall.Gettid() != main {
				stop, err = start(process, filepath.Join(t.TempDir(), "log"))
			}
			ended <- syscall.Gettid()
		}()
		thread = <-ended
	}
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	task := fmt.Sprintf("/proc/self/task/%d", thread)
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		if _, err := os.Stat(task); os.IsNotExist(err) {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the thread does not end")
		}
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", process.Process.Pid))
	if err != nil || strings.Contains(string(stat), ") Z ") {
		t.Errorf("the process died with the thread: %v %s", err, stat)
	}
}
