package wallclock

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"
)

// envPrintTime makes this test program print its time instead of testing.
const envPrintTime = "WALLCLOCK_PRINT_TIME"

// TestClock sets the clock of a process wrong and right again. The process is a Go program: this test once more.
func TestClock(t *testing.T) {
	if os.Getenv(envPrintTime) != "" {
		for range time.Tick(10 * time.Millisecond) {
			fmt.Println(time.Now().Unix())
		}
	}
	cmd := exec.Command("/proc/self/exe", "-test.run", "^TestClock$")
	cmd.Env = append(os.Environ(), envPrintTime+"=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	buffer := make([]byte, 4096)
	reads := func(want time.Duration) {
		t.Helper()
		var have time.Duration
		deadline := time.Now().Add(time.Minute)
		for time.Now().Before(deadline) {
			n, err := out.Read(buffer)
			if err != nil {
				t.Fatalf("the process has ended: %v", err)
			}
			lines := strings.Fields(string(buffer[:n]))
			if len(lines) == 0 {
				continue
			}
			seconds, err := strconv.ParseInt(lines[len(lines)-1], 10, 64)
			if err != nil {
				continue
			}
			if have = time.Until(time.Unix(seconds, 0)); (have - want).Abs() < 5*time.Second {
				return
			}
		}
		t.Fatalf("the clock is off by %s, want %s", have, want)
	}
	reads(0)
	c, err := Find(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	for _, off := range []time.Duration{10 * time.Minute, -10 * time.Minute} {
		if err := c.PutOff(off); err != nil {
			t.Fatal(err)
		}
		reads(off)
	}
	if err := c.PutRight(); err != nil {
		t.Fatal(err)
	}
	reads(0)
}
