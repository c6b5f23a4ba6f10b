package hostnet

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
)

// OwnTables returns our nftables tables as text of the program nft. The library cannot return the text of rules.
func OwnTables(ctx context.Context) (string, error) {
	list, err := nft(ctx, "list", "tables")
	if err != nil {
		return "", err
	}
	var out strings.Builder
	for line := range strings.Lines(list) {
		// table FAMILY NAME
		words := strings.Fields(line)
		if len(words) != 3 || words[2] != tableName && !strings.HasPrefix(words[2], tableName+"-") {
			continue
		}
		text, err := nft(ctx, append([]string{"list"}, words...)...)
		if err != nil {
			return "", err
		}
		out.WriteString(text)
	}
	return out.String(), nil
}

func nft(ctx context.Context, args ...string) (string, error) {
	var stderr strings.Builder
	cmd := exec.CommandContext(ctx, "nft", args...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("nft %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return string(out), nil
}
