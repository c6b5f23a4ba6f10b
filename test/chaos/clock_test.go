package chaos

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Time namespaces leave CLOCK_REALTIME alone, and a preloaded library does not reach a static
// program. So the wall clock of one process is put off where it reads it: in its own copy of the
// vDSO, whose clock_gettime is replaced by a system call and an addition. The program needs no
// hook, everything else on the machine keeps its time, and the original bytes can be written
// back. It covers every time.Now of a Go program and, through libc, of a C program; it does not
// cover the monotonic clock, which no administrator can set either, nor file times.

// clock is the wall clock of one process.
type clock struct {
	pid      int
	address  int64 // of the vDSO's clock_gettime
	size     int64
	original []byte
}

// clockStub is clock_gettime(clock, *timespec) for amd64, with the seconds to add as the last
// operand but one.
func clockStub(off time.Duration) []byte {
	code := []byte{
		0xb8, 0xe4, 0x00, 0x00, 0x00, // mov eax, 228 (clock_gettime)
		0x0f, 0x05, // syscall
		0x85, 0xff, // test edi, edi (CLOCK_REALTIME is 0)
		0x75, 0x07, // jnz over the addition
		0x48, 0x81, 0x06, // add qword ptr [rsi], imm32
	}
	code = binary.LittleEndian.AppendUint32(code, uint32(int32(off/time.Second)))
	return append(code, 0xc3) // ret
}

// findClock locates a process's clock_gettime.
func findClock(pid int) (*clock, error) {
	if runtime.GOARCH != "amd64" {
		return nil, fmt.Errorf("put a clock off: there is code for amd64, not for %s", runtime.GOARCH)
	}
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(maps)) {
		if !strings.HasSuffix(strings.TrimSpace(line), "[vdso]") {
			continue
		}
		first, last, _ := strings.Cut(strings.Fields(line)[0], "-")
		begin, err := strconv.ParseInt(first, 16, 64)
		if err != nil {
			return nil, err
		}
		end, err := strconv.ParseInt(last, 16, 64)
		if err != nil {
			return nil, err
		}
		image := make([]byte, end-begin)
		memory, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
		if err != nil {
			return nil, err
		}
		defer memory.Close()
		if _, err := memory.ReadAt(image, begin); err != nil {
			return nil, fmt.Errorf("read the vDSO of process %d: %w", pid, err)
		}
		file, err := elf.NewFile(bytes.NewReader(image))
		if err != nil {
			return nil, fmt.Errorf("vDSO of process %d: %w", pid, err)
		}
		symbols, err := file.DynamicSymbols()
		if err != nil {
			return nil, fmt.Errorf("vDSO of process %d: %w", pid, err)
		}
		for _, s := range symbols {
			if s.Name != "__vdso_clock_gettime" {
				continue
			}
			size := int64(len(clockStub(0)))
			if int64(s.Size) < size {
				return nil, fmt.Errorf("vDSO of process %d: clock_gettime has %d bytes, want %d or more", pid, s.Size, size)
			}
			c := &clock{pid: pid, address: begin + int64(s.Value), size: int64(s.Size)}
			c.original = bytes.Clone(image[s.Value : int64(s.Value)+size])
			return c, nil
		}
	}
	return nil, fmt.Errorf("process %d has no vDSO with clock_gettime", pid)
}

// putOff moves the process's wall clock, into the past when off is negative.
func (c *clock) putOff(off time.Duration) error { return c.write(clockStub(off)) }

// putRight undoes putOff. A process that has gone needs nothing.
func (c *clock) putRight() error {
	err := c.write(c.original)
	if errors.Is(err, unix.ESRCH) || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// write replaces the function's code while no thread is in it.
func (c *clock) write(code []byte) error {
	for range 100 {
		if err := unix.Kill(c.pid, unix.SIGSTOP); err != nil {
			return err
		}
		// Threads stop when they are scheduled, which takes its time on a busy machine.
		outside, err := c.nobodyInside()
		for i := 0; i < 100 && err == nil && !outside; i++ {
			time.Sleep(time.Millisecond)
			outside, err = c.nobodyInside()
		}
		if err == nil && outside {
			err = c.poke(code)
		}
		if contErr := unix.Kill(c.pid, unix.SIGCONT); err == nil {
			err = contErr
		}
		if err != nil || outside {
			return err
		}
	}
	return fmt.Errorf("process %d is always in clock_gettime or does not stop", c.pid)
}

func (c *clock) poke(code []byte) error {
	memory, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", c.pid), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer memory.Close()
	if _, err := memory.WriteAt(code, c.address); err != nil {
		return fmt.Errorf("write to the vDSO of process %d: %w", c.pid, err)
	}
	return nil
}

// nobodyInside reports whether all threads have stopped, and none in the function. The last
// field of a stopped thread's "syscall" is its program counter (proc(5)).
func (c *clock) nobodyInside() (bool, error) {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/syscall", c.pid))
	if err != nil {
		return false, err
	}
	for _, path := range threads {
		text, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
			continue // a thread that has ended
		}
		if err != nil {
			return false, err
		}
		fields := strings.Fields(string(text))
		if len(fields) < 2 {
			return false, nil // it runs
		}
		pc, err := strconv.ParseInt(strings.TrimPrefix(fields[len(fields)-1], "0x"), 16, 64)
		if err != nil {
			return false, fmt.Errorf("%s: %w", path, err)
		}
		if pc >= c.address && pc < c.address+c.size {
			return false, nil
		}
	}
	return len(threads) > 0, nil
}

// envPrintTime makes this test program print its time instead of testing.
const envPrintTime = "CHAOS_PRINT_TIME"

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
	c, err := findClock(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	for _, off := range []time.Duration{10 * time.Minute, -10 * time.Minute} {
		if err := c.putOff(off); err != nil {
			t.Fatal(err)
		}
		reads(off)
	}
	if err := c.putRight(); err != nil {
		t.Fatal(err)
	}
	reads(0)
}
