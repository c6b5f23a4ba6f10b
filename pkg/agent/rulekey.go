package agent

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tombolo-net/tombolo/pkg/cni"
)

// ruleKeyFile is the file with the key of the numbers of rules (datapath.Node.RuleKey). It is in the directory of the
// agent's sockets, which a boot empties. So the key is lost together with the connections.
const ruleKeyFile = "rule-key"

// ruleKeyLen is the length of a key in bytes.
const ruleKeyLen = 32

// ruleKey returns the key of the numbers of rules, and makes one if there is no key. If an earlier version has attached
// Pods, the key is empty, since their connections have numbers without a key. It returns a key even together with an
// error.
func ruleKey(dir string, attached []cni.Attachment) (string, error) {
	path := filepath.Join(dir, ruleKeyFile)
	text, err := os.ReadFile(path)
	key, broken := hex.DecodeString(strings.TrimSpace(string(text)))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if slices.ContainsFunc(attached, isThere) {
			return "", nil
		}
	case err != nil:
		err = fmt.Errorf("read the key of rule numbers; known connections are judged again: %w", err)
	case broken != nil || len(key) != ruleKeyLen:
		err = fmt.Errorf("%s is no key of rule numbers: known connections are judged again", path)
	default:
		return string(key), nil
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	key = make([]byte, ruleKeyLen)
	_, _ = rand.Read(key) // it never fails
	failed := os.MkdirAll(dir, 0o755)
	if failed == nil {
		failed = os.WriteFile(path+".new", []byte(hex.EncodeToString(key)+"\n"), 0o600)
	}
	if failed == nil {
		failed = os.Rename(path+".new", path)
	}
	if failed != nil {
		err = errors.Join(err, fmt.Errorf(
			"keep the key of rule numbers; known connections are judged again when the agent starts next: %w", failed))
	}
	return string(key), err
}

// isThere reports whether the Node has the interface of an attachment. After a boot the OVSDB still has attachments,
// but their interfaces are gone.
func isThere(at cni.Attachment) bool {
	_, err := net.InterfaceByName(at.PortName)
	return err == nil
}
