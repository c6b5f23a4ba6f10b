package lab

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// TestForeignDirectory gives Up directories that it must not take, and takes the lab of that
// name down afterwards.
func TestForeignDirectory(t *testing.T) {
	name := fmt.Sprintf("dir%d", os.Getpid())
	for _, test := range []struct {
		name string
		fill func(dir string) error
		want string
	}{
		{"file of somebody's", func(dir string) error { return os.WriteFile(filepath.Join(dir, "thesis"), nil, 0o644) },
			"is not empty"},
		{"directory of a cluster's name", func(dir string) error { return os.Mkdir(filepath.Join(dir, "one"), 0o755) },
			"is not empty"},
		{"another lab's", func(dir string) error { return makeOwnDir(dir, "another") }, "belongs to lab another"},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			if err := test.fill(dir); err != nil {
				t.Fatal(err)
			}
			before := tree(t, dir)
			if test.want == "belongs to lab another" {
				if err := os.WriteFile(filepath.Join(dir, "kept"), nil, 0o644); err != nil {
					t.Fatal(err)
				}
				before = tree(t, dir)
			}
			_, err := Up(t.Context(), Config{Name: name, Dir: dir, Clusters: []string{"one"}, Nodes: 1})
			if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), dir) {
				t.Errorf("Up: %v, want an error with %s and %q", err, dir, test.want)
			}
			if err := Remove(t.Context(), name); err != nil {
				t.Errorf("Remove: %v", err)
			}
			if after := tree(t, dir); fmt.Sprint(after) != fmt.Sprint(before) {
				t.Errorf("the directory holds %q, want %q", after, before)
			}
		})
	}
	t.Run("directory of the labs' records", func(t *testing.T) {
		for _, dir := range []string{stateRoot, filepath.Join(stateRoot, "another")} {
			if _, err := Up(t.Context(), Config{Name: name, Dir: dir, Clusters: []string{"one"}, Nodes: 1}); err == nil ||
				!strings.Contains(err.Error(), "outside "+stateRoot) {
				t.Errorf("Up in %s: %v", dir, err)
			}
		}
	})
}

// TestOwnDirectory has files come into a lab's directory while the lab is there.
func TestOwnDirectory(t *testing.T) {
	claimed := func(t *testing.T) (name, dir string) {
		name, dir = fmt.Sprintf("own%d", os.Getpid()), filepath.Join(t.TempDir(), "files")
		config := Config{Name: name, Dir: dir, Clusters: []string{"one"}, Nodes: 1}
		if err := config.check(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = Remove(context.WithoutCancel(t.Context()), name) })
		if _, err := claim(config, binaries{}); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "etcd.log"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		return name, dir
	}
	gone := func(t *testing.T, path string) {
		t.Helper()
		if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is still there (%v)", path, err)
		}
	}

	t.Run("nothing foreign", func(t *testing.T) {
		name, dir := claimed(t)
		if err := Remove(t.Context(), name); err != nil {
			t.Error(err)
		}
		gone(t, dir)
	})
	t.Run("foreign file beside the lab's", func(t *testing.T) {
		name, dir := claimed(t)
		if err := os.WriteFile(filepath.Join(dir, "notes"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		if err := Remove(t.Context(), name); err == nil || !strings.Contains(err.Error(), "notes") {
			t.Errorf("Remove: %v, want an error that names the file", err)
		}
		if left := tree(t, dir); fmt.Sprint(left) != "[notes]" {
			t.Errorf("the directory holds %q, want only notes", left)
		}
		gone(t, filepath.Join(stateRoot, name))
	})
	t.Run("mark removed", func(t *testing.T) {
		name, dir := claimed(t)
		if err := os.Remove(filepath.Join(dir, markerFile)); err != nil {
			t.Fatal(err)
		}
		if err := Remove(t.Context(), name); err == nil || !strings.Contains(err.Error(), "is not marked") {
			t.Errorf("Remove: %v, want an error about the mark", err)
		}
		if left := tree(t, dir); len(left) == 0 {
			t.Error("a directory without the mark was emptied")
		}
	})
	t.Run("directory deleted", func(t *testing.T) {
		name, dir := claimed(t)
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		if err := Remove(t.Context(), name); err != nil {
			t.Error(err)
		}
		gone(t, filepath.Join(stateRoot, name))
	})
	t.Run("left by a lab of the same name", func(t *testing.T) {
		name, dir := claimed(t)
		if err := os.Remove(filepath.Join(stateRoot, name)); err != nil {
			t.Fatal(err)
		}
		config := Config{Name: name, Dir: dir, Clusters: []string{"one"}, Nodes: 1}
		if _, err := claim(config, binaries{}); err != nil {
			t.Fatal(err)
		}
		gone(t, filepath.Join(dir, "etcd.log"))
	})
}

// foreignNamespace makes a network namespace as another program would, with a process in it.
func foreignNamespace(t *testing.T, name string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("sleep", "600")
	err := onThread(func() error {
		ns, err := netns.NewNamed(name)
		if err != nil {
			return err
		}
		defer ns.Close()
		return cmd.Start()
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if err := netns.DeleteNamed(name); err != nil {
			t.Error(err)
		}
	})
	return cmd
}

func alive(cmd *exec.Cmd) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", cmd.Process.Pid))
	return err == nil && !strings.Contains(string(stat), ") Z ")
}

// TestForeignNamespace has another program's network namespaces under names of the lab's.
func TestForeignNamespace(t *testing.T) {
	network := func(t *testing.T, name string) (*Lab, error) {
		config := Config{Name: name, Clusters: []string{"one"}, Nodes: 1}
		if err := config.check(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = Remove(context.WithoutCancel(t.Context()), name) })
		r, err := claim(config, binaries{})
		if err != nil {
			t.Fatal(err)
		}
		l := newLab(r, nil)
		return l, l.network()
	}
	survives := func(t *testing.T, p place, cmd *exec.Cmd, id namespaceID) {
		t.Helper()
		if !alive(cmd) {
			t.Errorf("the process in %s was killed", p.name)
		}
		if now, err := p.identify(); err != nil || now != id {
			t.Errorf("network namespace %s is %v (%v), want %v", p.name, now, err, id)
		}
	}

	t.Run("there before the lab", func(t *testing.T) {
		name := fmt.Sprintf("nsa%d", os.Getpid())
		p := place{name + "-outside"}
		cmd := foreignNamespace(t, p.name)
		id, err := p.identify()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := network(t, name); err == nil || !strings.Contains(err.Error(), p.path()) {
			t.Errorf("the network is made with a foreign namespace of the name: %v", err)
		}
		if err := Remove(t.Context(), name); err == nil || !strings.Contains(err.Error(), p.name) {
			t.Errorf("Remove: %v, want an error that names %s", err, p.name)
		}
		survives(t, p, cmd, id)
		if _, err := os.Lstat(filepath.Join(netnsDir, name+"-router")); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the lab's router is still there: %v", err)
		}
		if err := Remove(t.Context(), name); err != nil {
			t.Errorf("Remove once more, without a lab: %v", err)
		}
		survives(t, p, cmd, id)
	})
	t.Run("same name, another inode", func(t *testing.T) {
		name := fmt.Sprintf("nsb%d", os.Getpid())
		l, err := network(t, name)
		if err != nil {
			t.Fatal(err)
		}
		p := l.outside()
		if err := p.remove(); err != nil { // another program deletes it, and uses the name
			t.Fatal(err)
		}
		cmd := foreignNamespace(t, p.name)
		id, err := p.identify()
		if err != nil {
			t.Fatal(err)
		}
		if err := killInside(t.Context(), p, nil); !errors.Is(err, errForeign) {
			t.Errorf("killInside: %v", err)
		}
		if err := Remove(t.Context(), name); err == nil || !strings.Contains(err.Error(), p.name) {
			t.Errorf("Remove: %v, want an error that names %s", err, p.name)
		}
		survives(t, p, cmd, id)
		for _, path := range []string{l.Dir(), l.router().path(), p.recordPath()} {
			if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s is still there: %v", path, err)
			}
		}
	})
	t.Run("name that begins like the lab's", func(t *testing.T) {
		name := fmt.Sprintf("nsc%d", os.Getpid())
		p := place{name + "-vpn"}
		cmd := foreignNamespace(t, p.name)
		id, err := p.identify()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := network(t, name); err != nil {
			t.Fatal(err)
		}
		if err := Remove(t.Context(), name); err != nil {
			t.Error(err)
		}
		survives(t, p, cmd, id)
	})
}

// TestForeignHostLink has another program's interface under the name of the lab's.
func TestForeignHostLink(t *testing.T) {
	p := plan{maxLabs + 3} // an index that no lab has
	err := onThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return err
		}
		veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: p.hostLink()}, PeerName: "peer"}
		if err := netlink.LinkAdd(veth); err != nil {
			return err
		}
		if err := p.disconnectHost("x"); err != nil {
			return err
		}
		link, err := netlink.LinkByName(p.hostLink())
		if err != nil {
			return fmt.Errorf("somebody else's link was removed: %w", err)
		}
		if err := netlink.LinkSetAlias(link, hostLinkAlias("x")); err != nil {
			return err
		}
		if err := p.disconnectHost("x"); err != nil {
			return err
		}
		if _, err := netlink.LinkByName(p.hostLink()); err == nil {
			return errors.New("the lab's own link was not removed")
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
