package lab

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// envLab names the lab in the environment of what it starts, so that it is found again.
const envLab = "TOMBOLO_LAB"

// start runs a program in a network namespace, detached from the caller, with its output
// appended to a log file.
func start(p place, log string, cmd *exec.Cmd) error {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, out
	if cmd.Env == nil {
		cmd.Env = os.Environ()
	}
	lab, _, _ := strings.Cut(p.name, "-")
	cmd.Env = append(cmd.Env, envLab+"="+lab, "GOGC=300") // of control planes, kubelets and containerd: memory for CPU
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setsid = true
	err = p.do(cmd.Start)
	if err != nil {
		return fmt.Errorf("start %s in %s: %w", filepath.Base(cmd.Path), p.name, err)
	}
	go func() { _ = cmd.Wait() }() // no zombie while this process lives; after that init reaps
	return nil
}

// process is one that was found, not remembered.
type process struct {
	pid  int
	args []string
}

// name is what the process was called as, without its folder.
func (p process) name() string {
	if len(p.args) == 0 {
		return ""
	}
	return filepath.Base(p.args[0])
}

// processes returns those in the network namespaces with these inodes.
func processes(inodes ...uint64) ([]process, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var found []process
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		var st unix.Stat_t
		if err := unix.Stat(filepath.Join("/proc", e.Name(), "ns/net"), &st); err != nil {
			continue // it has gone, or is a zombie
		}
		for _, inode := range inodes {
			if st.Ino != inode {
				continue
			}
			text, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
			if err != nil {
				break
			}
			args := strings.Split(string(bytes.TrimRight(text, "\x00")), "\x00")
			found = append(found, process{pid, args})
		}
	}
	return found, nil
}

// inside returns the processes in a place; none when it does not exist.
func inside(p place) ([]process, error) {
	inode, err := p.inode()
	if errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return processes(inode)
}

// named returns the process of that name in a place.
func named(p place, name string) (process, bool, error) {
	all, err := inside(p)
	if err != nil {
		return process{}, false, err
	}
	for _, proc := range all {
		if proc.name() == name {
			return proc, true, nil
		}
	}
	return process{}, false, nil
}

// killInside kills the processes in a place that pick selects, and waits until they are gone. If the lab has not made
// the place, that is an error and no process is killed. It lists the processes repeatedly, since a dying parent may
// have started a child.
func killInside(ctx context.Context, p place, pick func(process) bool) error {
	err := p.own()
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return eventually(ctx, time.Minute, func(context.Context) error {
		all, err := inside(p)
		if err != nil {
			return err
		}
		var left []string
		for _, proc := range all {
			if pick != nil && !pick(proc) {
				continue
			}
			left = append(left, fmt.Sprintf("%s (%d)", proc.name(), proc.pid))
			if err := syscall.Kill(proc.pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
				return fmt.Errorf("kill %s (%d): %w", proc.name(), proc.pid, err)
			}
		}
		if len(left) > 0 {
			return fmt.Errorf("still in %s: %s", p.name, strings.Join(left, ", "))
		}
		return nil
	})
}

// bootLimit is the longest time for any part of a lab to come up. Each takes some seconds, but the machine may run
// other labs and compilers.
const bootLimit = 4 * time.Minute

// eventually tries f until it returns nil; after limit it returns f's last error.
func eventually(ctx context.Context, limit time.Duration, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := f(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("after %s: %w", limit, err)
		case <-tick.C:
		}
	}
}

// output runs a command and returns what it wrote. The error carries the last of stderr.
func output(cmd *exec.Cmd) (string, error) {
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	cmd.WaitDelay = cmp.Or(cmd.WaitDelay, 2*time.Second)
	if err := cmd.Run(); err != nil {
		if text := shortened(errs.String()); text != "" {
			return out.String(), fmt.Errorf("%w: %s", err, text)
		}
		return out.String(), err
	}
	return out.String(), nil
}

// shortened returns the end of what a program wrote to standard error, for errors.
func shortened(text string) string {
	text = strings.TrimSpace(text)
	if len(text) > 2000 {
		text = "..." + text[len(text)-2000:]
	}
	return text
}

// tail returns the end of a log, for errors.
func tail(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-5):], "\n")
}
