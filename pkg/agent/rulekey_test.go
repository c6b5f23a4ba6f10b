package agent

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/tombolo-net/tombolo/pkg/cni"
)

// TestRuleKey starts agents on Nodes with and without Pods and keys.
func TestRuleKey(t *testing.T) {
	pod, gone := cni.Attachment{PortName: "lo"}, cni.Attachment{PortName: "gone-1234567"}
	start := func(dir string, attached ...cni.Attachment) string {
		t.Helper()
		key, err := ruleKey(dir, attached)
		if err != nil {
			t.Error(err)
		}
		return key
	}
	one, other := t.TempDir(), t.TempDir()
	first := start(one)
	if len(first) != ruleKeyLen || first == start(other) {
		t.Errorf("a new Node has key %x, and another Node the same", first)
	}
	if key := start(one, pod); key != first {
		t.Errorf("after a restart the key is %x, want %x", key, first)
	}
	if info, err := os.Stat(filepath.Join(one, ruleKeyFile)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file of the key is %v, %v; want it readable for root alone", info, err)
	}
	upgraded := t.TempDir()
	for range 2 {
		if key := start(upgraded, gone, pod); key != "" {
			t.Errorf("a Node with Pods of an earlier version has key %x, want none", key)
		}
	}
	if key := start(upgraded, gone); len(key) != ruleKeyLen { // it has booted
		t.Errorf("a Node whose recorded Pods have no interface has key %x", key)
	}

	if err := os.WriteFile(filepath.Join(one, ruleKeyFile), []byte("5 years\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	key, err := ruleKey(one, []cni.Attachment{pod})
	if err == nil || len(key) != ruleKeyLen || key == first {
		t.Errorf("of a damaged file the key is %x, error %v; want another key, and an error", key, err)
	}
	if again := start(one, pod); again != key {
		t.Errorf("after it was mended the key is %x, want %x", again, key)
	}
	if key, err := ruleKey(filepath.Join(one, ruleKeyFile), nil); err == nil || len(key) != ruleKeyLen {
		t.Errorf("with a file in the place of the directory the key is %x, error %v; want a key, and an error", key, err)
	}
}
