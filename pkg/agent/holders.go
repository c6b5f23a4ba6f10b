package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
)

// holdersFile is the file in the state directory that records which Node was seen first with a WireGuard key. A
// restarted agent trusts no Node that has announced another Node's key in the meantime.
const holdersFile = "wireguard-holders.json"

// readHolders reads the file. A missing or unreadable file counts as empty, and is written again.
func readHolders(path string) (map[string]string, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	out := map[string]string{}
	if err == nil {
		err = json.Unmarshal(data, &out)
	}
	if err != nil {
		return nil, fmt.Errorf("read who has which WireGuard key from %s: %w", path, err)
	}
	return out, nil
}

// holdersWriter returns a function that writes the file if its content has changed. A failed write is reported, and
// repeated with the next change.
func holdersWriter(path string, saved map[string]string, report func(error)) func(map[string]string) {
	return func(now map[string]string) {
		if maps.Equal(now, saved) {
			return
		}
		data, err := json.Marshal(now)
		if err == nil {
			err = errors.Join(os.WriteFile(path+".new", data, 0o600), os.Rename(path+".new", path))
		}
		if err != nil {
			report(fmt.Errorf("write who has which WireGuard key to %s: %w", path, err))
			return
		}
		saved = now
	}
}
