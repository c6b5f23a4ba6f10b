package ports

import "testing"

// TestFree reserves a port. Another open file can lock the port only after the test that reserved it has ended.
func TestFree(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir()) // without the ports of other tests
	other, err := open()
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	var port int
	t.Run("reserved", func(t *testing.T) {
		port = Free(t)
		if err := lock(other, port); err == nil {
			t.Errorf("port %d is reserved twice", port)
		}
	})
	if err := lock(other, port); err != nil {
		t.Errorf("port %d is still reserved: %v", port, err)
	}
}
