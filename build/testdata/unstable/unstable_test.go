// Package unstable has tests that fail as the environment says. TestUnstable of package build runs them.
package unstable

import (
	"os"
	"testing"
)

// TestOnce fails unless the file exists, and makes it.
func TestOnce(t *testing.T) {
	file := os.Getenv("UNSTABLE_FILE")
	t.Run("first", func(t *testing.T) {
		if _, err := os.Stat(file); err == nil {
			return
		}
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		t.Error("the first time")
	})
}

// These fail each time if they are asked to.
func TestA(t *testing.T) { fail(t, "a") }
func TestB(t *testing.T) { fail(t, "b") }
func TestC(t *testing.T) { fail(t, "c") }
func TestD(t *testing.T) { fail(t, "d") }

func fail(t *testing.T, name string) {
	for _, r := range os.Getenv("UNSTABLE_ALWAYS") {
		if string(r) == name {
			t.Error("each time")
		}
	}
}
