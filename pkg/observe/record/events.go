package record

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Events calls add with each event of an answer for api.PathObserve. read writes the answer, each event as a line of
// JSON. Events returns after read has returned.
func Events(ctx context.Context, read func(io.Writer) error, add func(Event)) error {
	reader, writer := io.Pipe()
	defer context.AfterFunc(ctx, func() { _ = writer.CloseWithError(ctx.Err()) })()
	var failed error
	done := make(chan struct{})
	go func() {
		defer close(done)
		failed = read(writer)
		_ = writer.Close()
	}()
	lines := bufio.NewScanner(reader)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e Event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			_ = reader.CloseWithError(err)
			<-done
			return fmt.Errorf("understand the agent's line: %w; are this command and the agent of one version?", err)
		}
		add(e)
	}
	_ = reader.Close()
	<-done
	return errors.Join(failed, lines.Err())
}
