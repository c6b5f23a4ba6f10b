// Package wallclock puts the wall clock of one process off, for tests of clocks that differ.
package wallclock

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Time namespaces leave CLOCK_REALTIME alone, and a preloaded library does not reach a static
// program. So the wall clock of one process is put off where it reads it: in its own copy of the
// vDSO, whose clock_gettime is replaced by a system call and an addition. The program needs no
// hook, everything else on the machine keeps its time, and the original bytes can be written
// back. It covers every time.Now of a Go program and, through libc, of a C program; it does not
// cover the monotonic clock, which no administrator can set either, nor file times.

// Clock is the wall clock of one process.
type Clock struct {
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

// Find locates a process's clock_gettime.
func Find(pid int) (*Clock, error) {
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
			c := &Clock{pid: pid, address: begin + int64(s.Value), size: int64(s.Size)}
			c.original = bytes.Clone(image[s.Value : int64(s.Value)+size])
			return c, nil
		}
	}
	return nil, fmt.Errorf("process %d has no vDSO with clock_gettime", pid)
}

// PutOff moves the process's wall clock, into the past when off is negative.
func (c *Clock) PutOff(off time.Duration) error { return c.write(clockStub(off)) }

// PutRight undoes PutOff. A process that has gone needs nothing.
func (c *Clock) PutRight() error {
	err := c.write(c.original)
	if errors.Is(err, unix.ESRCH) || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// write replaces the function's code while no thread is in it.
func (c *Clock) write(code []byte) error {
	for range 100 {
		if err := unix.Kill(c.pid, unix.SIGSTOP); err != nil {
			return err
		}
		// Threads stop when they are scheduled, which takes its time on a busy machine.
		outside, err := c.noneInside()
		for i := 0; i < 100 && err == nil && !outside; i++ {
			time.Sleep(time.Millisecond)
			outside, err = c.noneInside()
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

func (c *Clock) poke(code []byte) error {
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

// noneInside reports whether all threads have stopped outside of the function. The last
// field of a stopped thread's "syscall" is its program counter (proc(5)).
func (c *Clock) noneInside() (bool, error) {
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
